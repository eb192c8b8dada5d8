//! A custom store in two methods whose claims are held up between reading and writing.
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use idempotent::store::{
    BrowseOrder, Cas, CasBackend, Claim, ClaimHandle, Health, HealthReport, OrderTablePage, OwnerToken, Record,
    Release, ReleaseKind, Settled, StoreCapabilities, Version, VersionedRecord,
};
use idempotent::{Clock, Identity, Key, Scene, Store, StoreError, Timestamp};
use idempotent_testkit::{SkewedStores, VirtualClock, skew_conformance};
use tokio::sync::Notify;

use crate::common::ask;

/// A map whose rows have versions, as a backend that compares and swaps has.
///
/// The versions are of the whole map.
#[derive(Debug, Default)]
pub(crate) struct Versioned {
    rows: Mutex<HashMap<Key, (Version, Record)>>,
    versions: AtomicU64,
}

impl Versioned {
    /// Returns what is there; each swap is a microsecond of the store's time.
    pub(crate) fn read(&self, key: &Key) -> VersionedRecord {
        let row = self.rows.lock().unwrap().get(key).cloned();
        let now = Timestamp(1_000_000 + self.versions.load(SeqCst));
        VersionedRecord { version: row.as_ref().map_or(0, |row| row.0), record: row.map(|row| row.1), now }
    }

    pub(crate) fn remove(&self, key: &Key) {
        self.rows.lock().unwrap().remove(key);
    }

    pub(crate) fn swap(&self, key: &Key, seen: Version, next: Option<&Record>) -> bool {
        let mut rows = self.rows.lock().unwrap();
        if rows.get(key).map_or(0, |row| row.0) != seen {
            return false;
        }
        match next {
            Some(next) => rows.insert(key.clone(), (self.versions.fetch_add(1, SeqCst) + 1, next.clone())),
            None => rows.remove(key),
        };
        true
    }
}

/// A backend whose first read is answered, and then held up.
#[derive(Debug, Default)]
struct Slow {
    rows: Versioned,
    reads: AtomicU64,
    go: Notify,
}

#[async_trait]
impl CasBackend for Slow {
    async fn read(&self, key: &Key) -> Result<VersionedRecord, StoreError> {
        let reads = self.reads.fetch_add(1, SeqCst);
        let seen = VersionedRecord { now: Timestamp(1_000_000 + 100 * reads), ..self.rows.read(key) };
        if reads == 0 {
            self.go.notified().await;
        }
        Ok(seen)
    }

    async fn swap(&self, key: &Key, seen: Version, next: Option<&Record>) -> Result<bool, StoreError> {
        Ok(self.rows.swap(key, seen, next))
    }
}

/// A correct backend, and yet: what A read, "nothing there", is true again when A writes.
#[tokio::test]
async fn a_claim_held_up_over_a_claim_and_its_deletion_gets_a_higher_number() {
    let store = Cas(Slow::default());
    let key = Identity::new(Scene::Mq, "cas", "k").key("tests").unwrap();
    let number = |claim| match claim {
        Claim::Acquired(grant) => grant.fencing,
        other => panic!("{other:?}"),
    };
    let (a, b) = (ask(key.clone(), 1), ask(key.clone(), 2));
    let (a, b) = tokio::join!(biased; store.claim(&a), async {
        let b = number(store.claim(&b).await.unwrap());
        let (delay, retention, error) = (Duration::ZERO, Duration::from_secs(60), "failed".into());
        let release = Release { kind: ReleaseKind::Delete, delay, retention, error };
        let held = ClaimHandle::unanswered(key.clone(), OwnerToken(2));
        assert_eq!(store.release(&held, &release).await.unwrap(), Settled::Done);
        assert_eq!(store.peek(&key).await.unwrap(), None, "deleted for everybody");
        store.0.go.notify_one();
        b
    });
    let a = number(a.unwrap());
    assert!(a > b, "{a} after {b}");
}

/// A backend that adds capabilities of its own.
#[derive(Debug, Default)]
struct Checked(Versioned);

#[async_trait]
impl CasBackend for Checked {
    async fn read(&self, key: &Key) -> Result<VersionedRecord, StoreError> {
        Ok(VersionedRecord { now: Timestamp(1_000_000), ..self.0.read(key) })
    }

    async fn swap(&self, key: &Key, seen: Version, next: Option<&Record>) -> Result<bool, StoreError> {
        Ok(self.0.swap(key, seen, next))
    }

    fn capabilities(&self) -> StoreCapabilities<'_> {
        StoreCapabilities::none().with_health(self).with_browse_order(self)
    }
}

#[async_trait]
impl Health for Checked {
    async fn check(&self) -> Result<HealthReport, StoreError> {
        Ok(HealthReport::default())
    }
}

#[async_trait]
impl BrowseOrder for Checked {
    async fn browse_order(&self, _: Option<u128>, _: usize) -> Result<OrderTablePage, StoreError> {
        Ok(OrderTablePage::default())
    }
}

#[tokio::test]
async fn a_store_has_the_capabilities_of_its_backend() {
    let store = Cas(Checked::default());
    let all = store.capabilities();
    assert!(all.health.is_some() && all.browse_order.is_some() && all.inspect.is_some());
    let plain = Cas(Slow::default());
    let none = plain.capabilities();
    assert!(none.health.is_none() && none.browse_order.is_none() && none.inspect.is_some());

    let key = Identity::new(Scene::Mq, "cas", "k").key("tests").unwrap();
    store.claim(&ask(key.clone(), 1)).await.unwrap();
    assert_eq!(store.peek(&key).await.unwrap().unwrap().attempt, 1);
}

/// A backend whose time is that of its client.
#[derive(Debug)]
struct Clockless {
    rows: Arc<Versioned>,
    clock: VirtualClock,
}

const SKEW: Duration = Duration::from_secs(2);

#[async_trait]
impl CasBackend for Clockless {
    async fn read(&self, key: &Key) -> Result<VersionedRecord, StoreError> {
        Ok(VersionedRecord { now: self.clock.wall(), ..self.rows.read(key) })
    }

    async fn swap(&self, key: &Key, seen: Version, next: Option<&Record>) -> Result<bool, StoreError> {
        Ok(self.rows.swap(key, seen, next))
    }

    fn max_skew(&self) -> Duration {
        SKEW
    }
}

async fn skewed() -> SkewedStores {
    let rows = Arc::new(Versioned::default());
    SkewedStores::open(SKEW, async |clock| Cas(Clockless { rows: rows.clone(), clock })).await
}

skew_conformance!(clients_with_clocks_of_their_own, skewed());
