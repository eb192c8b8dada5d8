//! Runs through executors in real time, whose handlers end when the test demands it.
use std::sync::{Arc, Mutex};
use std::time::Duration;

use idempotent_core::{
    Call, DefaultReply, Event, Executor, FencingToken, Handler, Identity, Json, Lease, Observer, Outcome, Policy,
    Record, Rejection, RunInfo, Scene, State, Store,
};
use idempotent_harness::servers::RedisServer;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::key;

pub(crate) fn id(part: &str) -> Identity {
    Identity::new(Scene::Mq, "tests", part)
}

pub(crate) const fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

pub(crate) const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

#[derive(Debug)]
pub(crate) enum AppError {
    Idempotent(Rejection),
    NoStock,
}

impl From<Rejection> for AppError {
    fn from(rejection: Rejection) -> Self {
        Self::Idempotent(rejection)
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum End {
    Held,
    Ok,
    Err,
}

/// A handler that runs until the test ends it, and the values it saw.
#[derive(Debug)]
pub(crate) struct Job {
    begun: watch::Sender<u32>,
    end: watch::Sender<End>,
    seen: Mutex<Vec<(u32, FencingToken)>>,
}

impl Job {
    pub(crate) fn ends(end: End) -> Arc<Self> {
        Arc::new(Self { begun: watch::Sender::new(0), end: watch::Sender::new(end), seen: Mutex::default() })
    }

    pub(crate) fn quick() -> Arc<Self> {
        Self::ends(End::Ok)
    }

    pub(crate) fn held() -> Arc<Self> {
        Self::ends(End::Held)
    }

    pub(crate) fn end(&self, end: End) {
        self.end.send_replace(end);
    }

    pub(crate) fn runs(&self) -> u32 {
        *self.begun.borrow()
    }

    /// Waits until this many runs have started.
    pub(crate) async fn begun(&self, runs: u32) {
        let mut begun = self.begun.subscribe();
        let waited = tokio::time::timeout(secs(30), begun.wait_for(|begun| *begun >= runs)).await;
        assert!(waited.is_ok(), "waited in vain for run {runs}");
    }

    pub(crate) fn attempts(&self) -> Vec<u32> {
        self.seen.lock().unwrap().iter().map(|(attempt, _)| *attempt).collect()
    }

    pub(crate) fn fencing(&self) -> Vec<FencingToken> {
        self.seen.lock().unwrap().iter().map(|(_, fencing)| *fencing).collect()
    }

    async fn run(&self) -> Result<u32, AppError> {
        if let Some(lease) = Lease::current() {
            self.seen.lock().unwrap().push((lease.attempt(), lease.fencing()));
        }
        self.begun.send_modify(|begun| *begun += 1);
        let run = self.runs();
        let mut end = self.end.subscribe();
        let end = *end.wait_for(|end| *end != End::Held).await.unwrap();
        match end {
            End::Err => Err(AppError::NoStock),
            End::Ok | End::Held => Ok(run),
        }
    }
}

/// A worker process, or an executor in its place.
#[derive(Clone, Debug)]
pub(crate) struct Worker {
    pub(crate) executor: Executor,
    failed: Failed,
}

/// Records the operations at which the store failed.
#[derive(Clone, Debug, Default)]
struct Failed(Arc<Mutex<Vec<&'static str>>>);

impl Observer for Failed {
    fn on(&self, _: &RunInfo<'_>, event: &Event<'_>) {
        if let Event::StoreFailed { step, .. } = event {
            self.0.lock().unwrap().push(step);
        }
    }
}

pub(crate) type Delivered = (Outcome, Result<u32, AppError>);

impl Worker {
    pub(crate) fn new(store: impl Store, policy: Policy) -> Self {
        let failed = Failed::default();
        let policy = policy.or(Policy::new().jitter(0));
        let builder = Executor::builder(store).policy(Scene::Mq, policy).observer(failed.clone());
        Self { executor: builder.build().unwrap(), failed }
    }

    async fn deliver_call(&self, call: Call, job: &Arc<Job>) -> Delivered {
        let job = job.clone();
        let handler = Handler::<DefaultReply, Json, _, _>::new(move || async move { job.run().await });
        let (answer, outcome) = Outcome::capture(self.executor.run(call, handler)).await;
        (outcome.unwrap(), answer)
    }

    /// Delivers `part` once and returns the outcome and the result.
    pub(crate) async fn deliver(&self, part: &str, job: &Arc<Job>) -> Delivered {
        self.deliver_call(Call::new(id(part)), job).await
    }

    pub(crate) async fn outcome(&self, part: &str, job: &Arc<Job>) -> Outcome {
        self.deliver(part, job).await.0
    }

    /// Starts a delivery in a task and returns once its handler has started.
    pub(crate) async fn begin(&self, part: &str, job: &Arc<Job>) -> JoinHandle<Delivered> {
        let runs = job.runs();
        let run = self.spawn(part, job);
        job.begun(runs + 1).await;
        run
    }

    pub(crate) fn spawn(&self, part: &str, job: &Arc<Job>) -> JoinHandle<Delivered> {
        let (worker, part, job) = (self.clone(), part.to_owned(), job.clone());
        tokio::spawn(async move { worker.deliver(&part, &job).await })
    }

    /// Redelivers a call without delay until the delivery is no longer deferred.
    pub(crate) async fn redeliver(&self, call: impl Fn() -> Call, job: &Arc<Job>) -> Outcome {
        for _ in 0..5_000 {
            let (outcome, _) = self.deliver_call(call(), job).await;
            // The server may also be slow to reply on a busy machine.
            if !outcome.is_deferral() && !matches!(outcome, Outcome::StoreDown(_)) {
                return outcome;
            }
            tokio::time::sleep(ms(10)).await;
        }
        panic!("put off for ever")
    }

    /// Returns the number of failures of this operation.
    pub(crate) fn failed(&self, step: &str) -> usize {
        self.failed.0.lock().unwrap().iter().filter(|failed| **failed == step).count()
    }
}

#[track_caller]
pub(crate) fn assert_in_flight(outcome: &Outcome) {
    assert!(matches!(outcome, Outcome::InFlight { .. }), "{outcome:?}");
}

pub(crate) async fn record(store: &dyn Store, part: &str) -> Option<Record> {
    store.peek(&key(part)).await.unwrap()
}

/// Returns the end of the lease in µs of the server's clock, like fencing numbers.
pub(crate) async fn lease_end(store: &dyn Store, part: &str) -> u64 {
    match record(store, part).await.unwrap().state {
        State::Consuming { until, .. } => until.0,
        other => panic!("not consuming: {other:?}"),
    }
}

/// Returns the server's time in µs.
pub(crate) fn time_of(server: &RedisServer) -> u64 {
    let time = server.command(&["TIME"]);
    let part = |at: usize| u64::try_from(time.items()[at].integer().unwrap()).unwrap();
    part(0) * 1_000_000 + part(1)
}

pub(crate) fn raw(server: &RedisServer, part: &str) -> Vec<u8> {
    match server.command(&["GET", key(part).as_str()]) {
        idempotent_harness::servers::Value::Bytes(bytes) => bytes,
        other => panic!("{other:?}"),
    }
}

/// Returns the time to live in ms: -1 for no expiry, -2 for no key.
pub(crate) fn ttl(server: &RedisServer, part: &str) -> i64 {
    server.command(&["PTTL", key(part).as_str()]).integer().unwrap()
}
