//! The cost of renewing leases.
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use idempotent::reply::DefaultReply;
use idempotent::store::{
    Batch, Claim, ClaimHandle, ClaimRequest, Completion, Record, Release, Settled, StoreCapabilities,
};
use idempotent::{Call, Executor, Handler, Json, Key, Lease, MemoryStore, Rejection, Store, StoreError};
use idempotent_testkit::VirtualClock;
use tokio::sync::Notify;

use crate::keys;
use crate::report::{Goal, Pair, Report, Rounds, nanos};

pub async fn all(report: &Report) {
    if report.wants("executor", "registering a heartbeat") {
        report.pair(
            ("", "registering a heartbeat", Some(1)),
            "ns",
            registering(report.rounds(21, 10_000, 1)).await,
            Goal::AtMost(0.05),
        );
    }
    if report.wants("executor", "store calls to renew 10,000 leases") {
        let calls = tokio::task::spawn_blocking(calls_to_renew).await.unwrap();
        // One call for each 256 leases.
        let goal = Goal::AtMost(LEASES.div_ceil(256) as f64);
        report.value(("", "store calls to renew 10,000 leases", None), "calls", calls, goal);
    }
}

/// Compares with a task for each run, which sleeps until its heartbeat and is aborted at its end. All runs are in
/// flight at once, in both cases.
async fn registering(Rounds { rounds, operations, .. }: Rounds) -> Pair {
    let executor = Executor::new(MemoryStore::new());
    let lease = lease_of(&executor).await;
    let mut pairs = Vec::new();
    for _ in 0..rounds {
        let start = Instant::now();
        let heartbeats =
            (0..operations).map(|_| idempotent_core::__private::renew_until_dropped(&executor, &lease, start));
        drop(heartbeats.collect::<Vec<_>>());
        let value = nanos(start.elapsed(), operations);
        let floor = nanos(spawning(operations).await, operations);
        pairs.push((value, floor));
    }
    Pair::medians(&pairs)
}

async fn spawning(runs: u64) -> Duration {
    let begun = Arc::new(AtomicU64::new(0));
    let start = Instant::now();
    let tasks = (0..runs).map(|_| {
        let begun = begun.clone();
        tokio::spawn(async move {
            begun.fetch_add(1, Ordering::Relaxed);
            tokio::time::sleep(Duration::from_secs(10)).await;
        })
    });
    let tasks = tasks.collect::<Vec<_>>();
    while begun.load(Ordering::Relaxed) < runs {
        tokio::task::yield_now().await;
    }
    tasks.iter().for_each(|task| task.abort());
    for task in tasks {
        assert!(task.await.is_err());
    }
    start.elapsed()
}

async fn lease_of(executor: &Executor) -> Lease {
    let lease = Arc::new(std::sync::Mutex::new(None));
    let handler = Handler::<DefaultReply, Json, _, _>::new(|| {
        let lease = lease.clone();
        async move {
            *lease.lock().unwrap() = Lease::current();
            Ok::<(), Rejection>(())
        }
    });
    executor.run(Call::new(keys::identity(0)), handler).await.unwrap();
    let lease = lease.lock().unwrap().take();
    lease.expect("a handler runs under a lease")
}

const LEASES: u64 = 10_000;

/// The default lease.
const LEASE: Duration = Duration::from_secs(30);

/// Counts the calls on a virtual clock, with runs that all wait, and one heartbeat.
fn calls_to_renew() -> f64 {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let clock = VirtualClock::new();
        let memory = MemoryStore::builder().clock(Arc::new(clock.clone())).build();
        let store = Arc::new(Counted { memory, calls: AtomicU64::new(0), renewed: AtomicU64::new(0) });
        let executor = Executor::builder(store.clone()).clock(Arc::new(clock.clone())).build().unwrap();
        let heartbeat = LEASE / 3;
        let (go, mut runs) = (Arc::new(Notify::new()), Vec::new());
        for number in 0..LEASES {
            let (executor, go) = (executor.clone(), go.clone());
            runs.push(tokio::spawn(async move {
                let handler = Handler::<DefaultReply, Json, _, _>::new(|| async {
                    go.notified().await;
                    Ok::<(), Rejection>(())
                });
                executor.run(Call::new(keys::identity(number)), handler).await.unwrap();
            }));
        }
        clock.settle().await;
        clock.advance(heartbeat).await;
        let (calls, renewed) = (store.calls.load(Ordering::Relaxed), store.renewed.load(Ordering::Relaxed));
        assert_eq!(renewed, LEASES);
        go.notify_waiters();
        for run in runs {
            run.await.unwrap();
        }
        calls as f64
    })
}

/// A store that counts renewals and their calls.
#[derive(Debug)]
struct Counted {
    memory: MemoryStore,
    calls: AtomicU64,
    renewed: AtomicU64,
}

#[async_trait]
impl Store for Counted {
    async fn claim(&self, request: &ClaimRequest) -> Result<Claim, StoreError> {
        self.memory.claim(request).await
    }

    async fn renew(&self, held: &ClaimHandle, lease: Duration) -> Result<Settled, StoreError> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.renewed.fetch_add(1, Ordering::Relaxed);
        self.memory.renew(held, lease).await
    }

    async fn complete(&self, held: &ClaimHandle, completion: &Completion) -> Result<Settled, StoreError> {
        self.memory.complete(held, completion).await
    }

    async fn release(&self, held: &ClaimHandle, release: &Release) -> Result<Settled, StoreError> {
        self.memory.release(held, release).await
    }

    async fn peek(&self, key: &Key) -> Result<Option<Record>, StoreError> {
        self.memory.peek(key).await
    }

    fn capabilities(&self) -> StoreCapabilities<'_> {
        StoreCapabilities::none().with_batch(self)
    }
}

#[async_trait]
impl Batch for Counted {
    async fn claim_all(&self, requests: &[ClaimRequest]) -> Vec<Result<Claim, StoreError>> {
        let mut claims = Vec::new();
        for request in requests {
            claims.push(self.memory.claim(request).await);
        }
        claims
    }

    async fn renew_all(&self, held: &[(ClaimHandle, Duration)]) -> Vec<Result<Settled, StoreError>> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.renewed.fetch_add(held.len() as u64, Ordering::Relaxed);
        let mut settled = Vec::new();
        for (held, lease) in held {
            settled.push(self.memory.renew(held, *lease).await);
        }
        settled
    }

    async fn complete_all(&self, done: &[(ClaimHandle, Completion)]) -> Vec<Result<Settled, StoreError>> {
        let mut settled = Vec::new();
        for (held, completion) in done {
            settled.push(self.memory.complete(held, completion).await);
        }
        settled
    }
}
