//! Shared parts of the tests of runs: a world on a virtual clock with either store, and a scripted handler.
#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::crate_in_macro_def,
    missing_docs
)]

use std::future::{Ready, ready};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::Duration;

use idempotent::executor::Drained;
use idempotent::reply::DefaultReply;
use idempotent::store::{ClaimRequest, OnExpiry, OwnerToken, Record};
use idempotent::{
    BatchItem, Call, Clock, Disposition, Executor, ExecutorBuilder, Handler, Identity, Json, Key, Lease, MemoryStore,
    Outcome, Policy, Rejection, Scene, Store, Timestamp,
};
use idempotent_testkit::{FaultStore, SeededEntropy, StoreOperation, VirtualClock};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

pub const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}
pub const fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

/// Transparent: `source()` leads past the rejection, so it cannot be found from outside.
#[derive(Debug, thiserror::Error)]
pub enum AppError {
    #[error(transparent)]
    Idempotent(#[from] Rejection),
    #[error("no stock")]
    NoStock,
    #[error("no such article")]
    NoArticle,
}

/// A store, the clock it lives by, and everything asked of it.
pub struct World {
    pub clock: VirtualClock,
    pub store: FaultStore,
    workers: AtomicU32,
    _dir: Option<tempfile::TempDir>,
}

/// One simulated process.
#[derive(Clone)]
pub struct Worker {
    pub executor: Executor,
    pub store: FaultStore,
    pub clock: VirtualClock,
}

impl World {
    /// Over a store that lives by this clock.
    pub fn over(store: impl Store, clock: VirtualClock) -> Self {
        Self { store: FaultStore::new(store, &clock), clock, workers: AtomicU32::new(0), _dir: None }
    }

    pub fn memory() -> Self {
        let clock = VirtualClock::new();
        Self::over(MemoryStore::builder().clock(Arc::new(clock.clone())).build(), clock)
    }

    #[cfg(feature = "stores")]
    pub async fn sqlite() -> Self {
        let clock = VirtualClock::new();
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("world.db");
        let builder = idempotent::SqliteStore::builder(path.to_str().unwrap()).clock(Arc::new(clock.clone()));
        let store = builder.open().await.unwrap();
        Self { _dir: Some(dir), ..Self::over(store, clock) }
    }

    /// An executor of its own over the one store, with hints that are not spread.
    pub fn worker(&self, name: &str, policy: Policy) -> Worker {
        self.worker_by(name, policy, |builder| builder)
    }

    pub fn worker_by(
        &self,
        name: &str,
        policy: Policy,
        more: impl FnOnce(ExecutorBuilder) -> ExecutorBuilder,
    ) -> Worker {
        let store = self.store.worker(name);
        let seed = u64::from(self.workers.fetch_add(1, SeqCst));
        let policy = policy.or(Policy::new().jitter(0));
        let builder = Executor::builder(store.clone())
            .clock(Arc::new(self.clock.clone()))
            .entropy(Arc::new(SeededEntropy::new(seed)))
            .policy(Scene::Mq, policy);
        Worker { executor: more(builder).build().unwrap(), store, clock: self.clock.clone() }
    }

    pub async fn record(&self, key: &str) -> Option<Record> {
        self.store.peek(&id(key).key("idempotent").unwrap()).await.unwrap()
    }

    /// Waits for the condition while the clock does not move. Notifications of a server arrive in real time.
    pub async fn until(&self, so: impl Fn() -> bool) {
        let begun = std::time::Instant::now();
        while !so() {
            assert!(begun.elapsed() < secs(60), "after a minute still not so");
            tokio::time::sleep(ms(1)).await;
            self.clock.settle().await;
        }
    }

    /// Returns the time until the record counts as absent.
    pub async fn ttl(&self, key: &str) -> Option<Duration> {
        self.record(key).await.map(|record| match record.expires_at {
            Timestamp::FOREVER => Duration::MAX,
            time => time - self.clock.wall(),
        })
    }

    /// Times at which `verb` was asked, in ms since the world began.
    pub fn asked(&self, verb: StoreOperation) -> Vec<u128> {
        self.store.log().iter().filter(|call| call.verb == verb).map(|call| call.started.as_millis()).collect()
    }
}

pub fn id(key: &str) -> Identity {
    Identity::new(Scene::Mq, "work", key)
}
pub fn key_of(key: &str) -> Key {
    id(key).key("idempotent").unwrap()
}

/// Claims for 30 s, without a fingerprint or a limit of attempts.
pub fn ask(key: Key, owner: u128) -> ClaimRequest {
    ClaimRequest {
        key,
        owner: OwnerToken(owner),
        lease: secs(30),
        fingerprint: None,
        max_attempts: 0,
        on_expiry: OnExpiry::Takeover,
        retention: secs(3_600),
        display: None,
    }
}

/// A handler with the default reply strategy and codec.
pub type PlainHandler<R, F> = Handler<DefaultReply, Json, R, F>;

/// Returns a handler of a batch that answers each item by itself.
#[allow(clippy::type_complexity)]
pub fn batch_of<T, V>(
    answer: impl Fn(T) -> Result<V, AppError>,
) -> PlainHandler<Result<V, AppError>, impl FnOnce(Vec<BatchItem<T>>) -> Ready<Vec<Result<V, AppError>>>> {
    PlainHandler::batch(move |items: Vec<BatchItem<T>>| {
        ready(items.into_iter().map(|given| answer(given.item)).collect())
    })
}

/// The script of a handler, and the number of its runs.
#[derive(Default)]
pub struct Job {
    pub runs: AtomicU32,
    pub attempts: std::sync::Mutex<Vec<(u32, u64)>>,
    pub takes: Duration,
    pub ends: End,
    pub open: Option<Arc<Notify>>,
}

#[derive(Clone, Copy, Default)]
pub enum End {
    #[default]
    Ok,
    Err,
    Panic,
}

impl Job {
    pub fn takes(takes: Duration) -> Arc<Self> {
        Arc::new(Self { takes, ..Self::default() })
    }
    pub fn ends(takes: Duration, ends: End) -> Arc<Self> {
        Arc::new(Self { takes, ends, ..Self::default() })
    }
    pub fn runs(&self) -> u32 {
        self.runs.load(SeqCst)
    }
    pub fn attempts(&self) -> Vec<u32> {
        self.attempts.lock().unwrap().iter().map(|(attempt, _)| *attempt).collect()
    }
    pub fn fencing(&self) -> Vec<u64> {
        self.attempts.lock().unwrap().iter().map(|(_, fencing)| *fencing).collect()
    }
    pub async fn run(&self, clock: &VirtualClock) -> Result<u32, AppError> {
        let run = self.runs.fetch_add(1, SeqCst) + 1;
        if let Some(lease) = Lease::current() {
            self.attempts.lock().unwrap().push((lease.attempt(), lease.fencing().0));
        }
        clock.sleep_until(clock.now() + self.takes).await;
        match self.ends {
            End::Ok => Ok(run),
            End::Err => Err(AppError::NoStock),
            End::Panic => panic!("as told"),
        }
    }
}

impl Worker {
    /// Delivers `key` once. Returns the outcome, and the caller's result.
    pub async fn deliver(&self, key: &str, job: &Arc<Job>) -> (Outcome, Result<u32, AppError>) {
        self.deliver_call(Call::new(id(key)), job).await
    }

    pub async fn deliver_call(&self, call: Call, job: &Arc<Job>) -> (Outcome, Result<u32, AppError>) {
        let (job, clock) = (job.clone(), self.clock.clone());
        let handler = PlainHandler::new(move || async move { job.run(&clock).await });
        let (answer, outcome) = Outcome::capture(self.executor.run(call, handler)).await;
        (outcome.expect("a run tells its outcome"), answer)
    }

    pub async fn outcome(&self, key: &str, job: &Arc<Job>) -> Outcome {
        self.deliver(key, job).await.0
    }

    /// A delivery in a task of its own, begun by the time this returns.
    pub async fn spawn(&self, key: &str, job: &Arc<Job>) -> JoinHandle<(Outcome, Result<u32, AppError>)> {
        let (worker, key, job) = (self.clone(), key.to_owned(), job.clone());
        let task = tokio::spawn(async move { worker.deliver(&key, &job).await });
        self.clock.settle().await;
        task
    }

    /// Drains in a task of its own.
    pub fn drain(&self, grace: Duration) -> JoinHandle<Drained> {
        let executor = self.executor.clone();
        tokio::spawn(async move { executor.drain(grace).await })
    }

    /// SIGKILL: the task is gone, and nothing it sends any more arrives.
    pub async fn kill<T>(&self, task: JoinHandle<T>) {
        self.store.kill();
        task.abort();
        assert!(task.await.is_err_and(|ended| ended.is_cancelled()));
        self.clock.settle().await;
    }
}

pub fn retry_after(outcome: &Outcome) -> Duration {
    match outcome.disposition() {
        Disposition::Retry { after } => after,
        other => panic!("{outcome:?} asks for {other:?}"),
    }
}

#[track_caller]
pub fn assert_in_flight(outcome: &Outcome) {
    assert!(matches!(outcome, Outcome::InFlight { .. }), "{outcome:?}");
}

pub fn on_memory<F: Future<Output = ()>>(test: impl FnOnce(World) -> F) {
    runtime().block_on(async { test(World::memory()).await });
}

#[cfg(feature = "stores")]
pub fn on_sqlite<F: Future<Output = ()>>(test: impl FnOnce(World) -> F) {
    runtime().block_on(async { test(World::sqlite().await).await });
}

pub fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

/// Runs each test on both stores.
#[macro_export]
macro_rules! on_both_stores {
    ($($name:ident)*) => {
        mod memory {
            $(#[test] fn $name() { crate::common::on_memory(super::$name) })*
        }
        #[cfg(feature = "stores")]
        mod sqlite {
            $(#[test] fn $name() { crate::common::on_sqlite(super::$name) })*
        }
    };
}

/// Runs each test on every store.
#[macro_export]
macro_rules! on_all_stores {
    ($($name:ident)*) => {
        $crate::on_both_stores! { $($name)* }
        #[cfg(feature = "stores")]
        mod postgres {
            $(#[test] fn $name() { $crate::servers::on_postgres(super::$name) })*
        }
        #[cfg(feature = "stores")]
        mod mariadb {
            $(#[test] fn $name() { $crate::servers::on_mariadb(super::$name) })*
        }
    };
}
