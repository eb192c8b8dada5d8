//! Real processes that really die, on one `SQLite` file: this test binary starts itself as the worker.
use crate::common::PlainHandler;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use idempotent::store::{
    Claim, ClaimHandle, ClaimRequest, Completion, Record, Release, Settled, StateKind, StoreCapabilities,
};
use idempotent::{
    Call, Disposition, Executor, Identity, Key, Lease, Outcome, Policy, Rejection, Scene, SqliteStore, Store,
    StoreError,
};

/// A claim is given up after a third of it; on a disk that others use as well it may take its time.
const LEASE: Duration = Duration::from_secs(2);

/// The points at which the worker dies, in order of a run.
const POINTS: [(&str, usize); 6] = [
    // (point, effects once the message is settled by another worker)
    ("before the claim", 1),
    ("after the claim", 1),
    ("before the effect", 1),
    // No lease can close this window; guarantee level L1.
    ("after the effect", 2),
    ("before the flip is heard", 1),
    ("after the run", 1),
];

#[derive(Debug)]
struct Dies {
    inner: Arc<dyn Store>,
    point: String,
}

impl Dies {
    fn at(&self, point: &str) {
        die(&self.point, point);
    }
}

fn die(wanted: &str, here: &str) {
    if wanted == here {
        // No destructor runs, nothing is flushed: SIGKILL on itself.
        let _ = Command::new("kill").args(["-9", &std::process::id().to_string()]).status();
        std::process::abort();
    }
}

#[async_trait]
impl Store for Dies {
    async fn claim(&self, request: &ClaimRequest) -> Result<Claim, StoreError> {
        self.at("before the claim");
        let claim = self.inner.claim(request).await;
        self.at("after the claim");
        claim
    }
    async fn renew(&self, held: &ClaimHandle, lease: Duration) -> Result<Settled, StoreError> {
        self.inner.renew(held, lease).await
    }
    async fn complete(&self, held: &ClaimHandle, completion: &Completion) -> Result<Settled, StoreError> {
        let settled = self.inner.complete(held, completion).await;
        self.at("before the flip is heard");
        settled
    }
    async fn release(&self, held: &ClaimHandle, release: &Release) -> Result<Settled, StoreError> {
        self.inner.release(held, release).await
    }
    async fn peek(&self, key: &Key) -> Result<Option<Record>, StoreError> {
        self.inner.peek(key).await
    }
    fn capabilities(&self) -> StoreCapabilities<'_> {
        StoreCapabilities::none()
    }
}

async fn deliver(dir: &Path, point: &str, policy: Policy) -> (Outcome, Result<u32, Rejection>) {
    let inner = Arc::new(SqliteStore::open(dir.join("store.db").to_str().unwrap()).await.unwrap());
    let executor = Executor::new(Dies { inner, point: point.to_owned() });
    let (effects, at) = (dir.join("effects"), point.to_owned());
    let handler = PlainHandler::new(move || async move {
        die(&at, "before the effect");
        let mut done = std::fs::read(&effects).unwrap_or_default();
        done.push(b'x');
        std::fs::write(&effects, done).unwrap();
        die(&at, "after the effect");
        Ok::<_, Rejection>(Lease::current().unwrap().attempt())
    });
    let call = Call::new(Identity::new(Scene::Mq, "crash", "k")).policy(policy.lease(LEASE));
    let (answer, outcome) = Outcome::capture(executor.run(call, handler)).await;
    die(point, "after the run");
    (outcome.unwrap(), answer)
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

/// The worker process; does nothing when run as a test.
#[test]
fn worker() {
    let (Ok(dir), Ok(point)) = (std::env::var("CRASH_DIR"), std::env::var("CRASH_POINT")) else { return };
    runtime().block_on(deliver(Path::new(&dir), &point, Policy::new().max_retries(2))).1.unwrap();
}

fn run_worker(dir: &Path, point: &str) -> ExitStatus {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "crash::worker"]).env("CRASH_DIR", dir).env("CRASH_POINT", point);
    command.stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap()
}

fn effects(dir: &Path) -> usize {
    std::fs::read(dir.join("effects")).unwrap_or_default().len()
}

/// Delivers as a broker would, until it is settled.
async fn redeliver(dir: &Path, policy: Policy) -> (Outcome, Result<u32, Rejection>, usize) {
    let mut deferred = 0;
    loop {
        let (outcome, answer) = deliver(dir, "", policy).await;
        match outcome.disposition() {
            Disposition::Retry { after } => {
                assert!(outcome.is_deferral(), "{outcome:?}");
                deferred += 1;
                tokio::time::sleep(after).await;
            }
            _ => return (outcome, answer, deferred),
        }
    }
}

/// A message is neither lost nor blocked by a kill at any step. The effect is in a file, so a crash after the effect
/// repeats it. A single effect needs a transaction; see the tests of the inbox.
#[test]
fn a_worker_killed_at_any_step_neither_loses_nor_blocks_its_message() {
    for (point, expected) in POINTS {
        let dir = tempfile::tempdir().unwrap();
        let died = run_worker(dir.path(), point);
        assert!(!died.success(), "{point}");
        let policy = Policy::new().max_retries(2);
        let (outcome, answer, deferred) = runtime().block_on(redeliver(dir.path(), policy));
        let flipped = matches!(point, "before the flip is heard" | "after the run");
        assert_eq!(outcome, if flipped { Outcome::Replayed } else { Outcome::Ran }, "{point}");
        let claimed = point != "before the claim";
        assert_eq!(
            answer.unwrap(),
            if claimed && !flipped { 2 } else { 1 },
            "{point}: the attempt is counted at claim"
        );
        assert_eq!(deferred > 0, claimed && !flipped, "{point}: deferred while the dead worker's lease lasts");
        assert_eq!(effects(dir.path()), expected, "{point}");
    }
}

#[test]
fn a_handler_that_kills_its_process_dies_three_times_and_is_buried() {
    let dir = tempfile::tempdir().unwrap();
    let (mut deaths, mut processes) = (0, 0);
    loop {
        processes += 1;
        assert!(processes < 1_000, "{deaths} deaths, and it is not buried");
        // During the lease of the dead worker, the next process is deferred, and lives.
        let status = run_worker(dir.path(), "before the effect");
        deaths += usize::from(status.code().is_none());
        let record = runtime().block_on(async {
            let store = SqliteStore::open(dir.path().join("store.db").to_str().unwrap()).await.unwrap();
            let key = Identity::new(Scene::Mq, "crash", "k").key("idempotent").unwrap();
            store.peek(&key).await.unwrap()
        });
        // None where a process gave up its claim: the disk was busy.
        if record.is_some_and(|record| record.state.kind() == StateKind::Dead) {
            break;
        }
        assert!(deaths <= 3, "it would kill processes for ever");
    }
    assert_eq!(deaths, 3, "exactly");
    let (outcome, answer, _) = runtime().block_on(redeliver(dir.path(), Policy::new().max_retries(2)));
    assert!(matches!(outcome, Outcome::Dead { .. }), "{outcome:?}");
    let Err(Rejection::Dead { attempts: 3, error, .. }) = answer else { panic!("{answer:?}") };
    assert!(error.contains("crashed"), "{error}");
    assert_eq!(effects(dir.path()), 0);
}
