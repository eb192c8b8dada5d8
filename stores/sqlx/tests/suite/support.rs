//! Shared parts of the tests.
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use idempotent_core::{
    Batch, ClaimHandle, ClaimRequest, Completion, Identity, Key, KeyFilter, OnExpiry, OwnerToken, PageLimits, Purge,
    Release, ReleaseKind, Scene, Settled, StepRecord, StepState, StepStore, Store,
};
use idempotent_sqlx::{SqliteStore, SqliteStoreBuilder};
use idempotent_testkit::VirtualClock;
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{AssertSqlSafe, ConnectOptions, Row};

/// Returns a clock that only a test moves, by [`jump`](VirtualClock::jump).
pub(crate) fn stopped_clock() -> Arc<VirtualClock> {
    Arc::new(VirtualClock::new())
}

/// A folder that goes with the test, and the path of a database in it.
pub(crate) struct Place {
    pub(crate) folder: tempfile::TempDir,
    pub(crate) path: PathBuf,
}

impl Place {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("records.db");
        Self { folder, path }
    }

    pub(crate) fn builder(&self) -> SqliteStoreBuilder {
        SqliteStore::builder(self.path.to_str().unwrap())
    }

    pub(crate) async fn open(&self) -> SqliteStore {
        self.builder().open().await.unwrap()
    }

    /// Opens a separate connection to the same file.
    pub(crate) async fn other(&self) -> SqliteConnection {
        SqliteConnectOptions::new().filename(&self.path).create_if_missing(true).connect().await.unwrap()
    }

    /// Executes SQL text on a separate connection.
    pub(crate) async fn sql(&self, text: &str) {
        let mut other = self.other().await;
        sqlx::raw_sql(AssertSqlSafe(text.to_owned())).execute(&mut other).await.unwrap();
    }

    /// Leaves a single file with a rollback journal. Waits for the connections of dropped stores, which close in their own threads.
    pub(crate) async fn leave_wal(&self) {
        let began = Instant::now();
        loop {
            let changed = sqlx::query("PRAGMA journal_mode=delete").fetch_one(&mut self.other().await).await;
            match changed.map(|row| row.get::<String, _>(0)) {
                Ok(mode) if mode == "delete" => return,
                other => assert!(began.elapsed() < Duration::from_secs(60), "{other:?}"),
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Every column of the only row, as SQLite quotes it.
    pub(crate) async fn row(&self) -> String {
        let text = "SELECT quote(id)||quote(v)||quote(name)||quote(state)||quote(owner)||quote(fencing)||quote(attempt)\
             ||quote(until_at)||quote(taken_over)||quote(fingerprint)||quote(expires_at)||quote(first_seen)\
             ||quote(updated_at)||quote(value)||quote(error)||quote(display) FROM idempotent_record";
        sqlx::query(text).fetch_one(&mut self.other().await).await.unwrap().get(0)
    }

    pub(crate) async fn count(&self, text: &str) -> i64 {
        let mut other = self.other().await;
        sqlx::query(AssertSqlSafe(text.to_owned())).fetch_one(&mut other).await.unwrap().get(0)
    }
}

pub(crate) fn key(part: &str) -> Key {
    Identity::new(Scene::Mq, "tests", part).key("test").unwrap()
}

pub(crate) fn request(key: &Key, owner: u128) -> ClaimRequest {
    ClaimRequest {
        key: key.clone(),
        owner: OwnerToken(owner),
        lease: Duration::from_secs(30),
        fingerprint: None,
        max_attempts: 0,
        on_expiry: OnExpiry::Takeover,
        retention: Duration::from_secs(3_600),
        display: None,
    }
}

pub(crate) fn held(key: &Key, owner: u128) -> ClaimHandle {
    ClaimHandle::unanswered(key.clone(), OwnerToken(owner))
}

pub(crate) fn done(value: &[u8]) -> Completion {
    Completion { value: Some(Arc::from(value)), retain: Duration::from_secs(3_600) }
}

pub(crate) fn release(verdict: ReleaseKind) -> Release {
    Release {
        kind: verdict,
        delay: Duration::ZERO,
        retention: Duration::from_secs(3_600),
        error: Arc::from("it failed"),
    }
}

/// SplitMix64: the same sequence for the same seed, everywhere.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % end
    }

    pub(crate) fn of<T: Clone>(&mut self, choices: &[T]) -> T {
        choices[usize::try_from(self.below(choices.len() as u64)).unwrap()].clone()
    }
}

/// Asserts that a listing limits its pages, whatever the caller asks for.
pub(crate) async fn pages_are_bounded(store: &(impl Store + Batch)) {
    let requests: Vec<_> = (0..10_001).map(|number| request(&key(&number.to_string()), 1)).collect();
    for some in requests.chunks(1_000) {
        assert!(store.claim_all(some).await.iter().all(Result::is_ok));
    }
    let search = store.capabilities().search.unwrap();
    let limits = PageLimits { keys: 1_000_000_000, examined: usize::MAX };
    let first = search.search(&KeyFilter::all(), None, limits).await.unwrap();
    assert_eq!(first.entries.len(), 10_000);
    let second = search.search(&KeyFilter::all(), first.next, limits).await.unwrap();
    assert_eq!((second.entries.len(), second.next), (1, None));
}

/// Asserts that a purge removes the steps of no more records than it was asked for. `delete_records` removes the records by SQL.
pub(crate) async fn purges_steps_as_asked<T: PartialEq + std::fmt::Debug>(
    store: &(impl Store + StepStore + Purge),
    clock: &VirtualClock,
    delete_records: impl AsyncFn(),
    count_steps: impl AsyncFn() -> T,
    left: [T; 4],
) {
    let hour = Duration::from_secs(3_600);
    for part in ["a", "b", "c", "d", "e"] {
        store.claim(&request(&key(part), 1)).await.unwrap();
        for place in 0..3 {
            let step = StepRecord { name: place.to_string().into(), place, state: StepState::Done, value: None };
            assert_eq!(store.note(&held(&key(part), 1), &step, hour).await.unwrap(), Settled::Done);
        }
    }
    delete_records().await;
    clock.jump(hour);
    for (at_most, left) in [0, 2, 1, usize::MAX].into_iter().zip(left) {
        assert_eq!(store.purge(at_most).await.unwrap(), 0);
        assert_eq!(count_steps().await, left, "{at_most}");
    }
}
