//! A law about a handler that blocks its runtime and still keeps its lease.
#![allow(clippy::panic, clippy::expect_used, reason = "a broken promise ends the test")]
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use idempotent_core::{
    Call, DefaultReply, Event, Executor, Handler, Identity, Json, Observer, Outcome, Policy, Rejection, RunInfo, Scene,
    Store,
};
use tokio::runtime::{Builder, Runtime};

/// The lease: long enough for a machine that stalls for many seconds.
const LEASE: Duration = Duration::from_secs(30);
/// The interval of renewals: short enough for two renewals within seconds.
const HEARTBEAT: Duration = Duration::from_secs(2);
const PATIENCE: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(50);

/// An observer that records whether the blocked runtime was reported.
#[derive(Clone, Debug, Default)]
struct Reports(Arc<AtomicBool>);

impl Observer for Reports {
    fn on(&self, _: &RunInfo<'_>, event: &Event<'_>) {
        if matches!(event, Event::RuntimeBlocked { .. }) {
            self.0.store(true, SeqCst);
        }
    }
}

/// Verifies that a handler that blocks the only thread of its runtime keeps its key. The executor renews the lease and
/// reports the block, and a second executor on another runtime does not run the key. `open` opens a store for the same
/// records each time, on the runtime that polls its future. Needs the capability [`Renewal`](idempotent_core::Renewal),
/// real time, and about five seconds.
///
/// ```
/// use idempotent_core::MemoryStore;
///
/// let store = MemoryStore::new();
/// idempotent_testkit::blocked_handler_keeps_its_key(async || store.clone());
/// ```
///
/// # Panics
/// If the lease is not renewed, the block is not reported, or the key runs twice.
pub fn blocked_handler_keeps_its_key<S: Store>(open: impl AsyncFn() -> S + Sync) {
    let (runs, reports) = (&AtomicU32::new(0), Reports::default());
    let (running, begun) = mpsc::channel();
    let (open, observer) = (&open, reports.clone());
    std::thread::scope(|scope| {
        // If a panic drops the sender, the handler ends.
        let (end, until) = mpsc::channel();
        let blocked = scope.spawn(move || {
            runtime().block_on(async {
                let executor = executor(open().await, observer);
                let (running, until) = (&running, &until);
                let handler = Handler::<DefaultReply, Json, _, _>::new(move || async move {
                    runs.fetch_add(1, SeqCst);
                    running.send(()).expect("the test waits");
                    // Blocks the only thread of the runtime, as no handler should.
                    until.recv_timeout(PATIENCE).expect("the test ends the handler");
                    Ok::<_, Rejection>(42)
                });
                Outcome::capture(executor.run(call(), handler)).await.1
            })
        });
        begun.recv_timeout(PATIENCE).expect("the handler starts");
        runtime().block_on(async {
            let store = open().await;
            let other = executor(store, Reports::default());
            renewed_twice(&other, runs, &reports).await;
        });
        end.send(()).expect("the handler waits");
        let outcome = blocked.join().expect("the blocked run ends");
        assert_eq!(outcome, Some(Outcome::Ran), "the run kept its lease");
    });
    assert_eq!(runs.load(SeqCst), 1);
}

/// Waits for two renewals and the report, and claims the key in the meantime.
async fn renewed_twice(other: &Executor, runs: &AtomicU32, reports: &Reports) {
    let (since, mut ends) = (Instant::now(), Vec::new());
    let mut is_reported = false;
    while ends.len() < 3 || !is_reported {
        let (renewals, late) = (ends.len().saturating_sub(1), since.elapsed() >= PATIENCE);
        assert!(!late, "within {PATIENCE:?}, {renewals} of 2 renewals; a blocked runtime is reported: {is_reported}");
        is_reported = reports.0.load(SeqCst);
        let handler = Handler::<DefaultReply, Json, _, _>::new(|| async {
            runs.fetch_add(1, SeqCst);
            Ok::<_, Rejection>(43)
        });
        let outcome = Outcome::capture(other.run(call(), handler)).await.1.expect("the run ended");
        // On a busy machine, a store with a short timeout may not answer.
        let is_held = matches!(outcome, Outcome::InFlight { .. } | Outcome::StoreDown(_));
        assert!(is_held, "another run of the key came to {outcome:?}");
        let key = identity().key("idempotent").expect("a key");
        let Ok(record) = other.store().peek(&key).await else { continue };
        let record = record.expect("the key is held");
        if ends.last().is_none_or(|last| *last < record.expires_at) {
            ends.push(record.expires_at);
        }
        tokio::time::sleep(PAUSE).await;
    }
}

fn executor(store: impl Store, observer: Reports) -> Executor {
    let policy = Policy::new().lease(LEASE).heartbeat(HEARTBEAT);
    Executor::builder(store).policy(Scene::Mq, policy).observer(observer).build().expect("the policy is sound")
}

fn call() -> Call {
    Call::new(identity())
}

fn identity() -> Identity {
    Identity::new(Scene::Mq, "blocked", "k")
}

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().expect("a runtime")
}
