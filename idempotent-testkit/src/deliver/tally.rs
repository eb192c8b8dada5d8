//! Counts of the handlers that ran in a delivery, which has a single outcome for any number of handlers.
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use idempotent_core::{Executor, Outcome};

tokio::task_local! {
    /// The runs that mocks have reported in the delivery that is being polled.
    static TOLD: Arc<AtomicU64>;
}

/// Records the outcome of a mock's run, if the run is part of a delivery.
pub(crate) fn note(outcome: &Outcome) {
    if RUNS.contains(&outcome.name()) {
        let _ = TOLD.try_with(|told| told.fetch_add(1, Ordering::Relaxed));
    }
}

/// The outcomes of handlers that ran to their end. A replay of another handler would hide them.
const RUNS: [&str; 2] = ["ran", "unprotected"];

/// A count of runs of the executor in scope, from a starting point on.
pub(super) struct Tally {
    executor: Option<Executor>,
    /// Runs that had ended at the start.
    ended: u64,
    /// Runs in flight at the start, which do not belong to this delivery.
    under_way: u64,
}

impl Tally {
    pub(super) fn begin() -> Self {
        let executor = in_scope();
        let under_way = executor.as_ref().map_or(0, |executor| {
            let counts = executor.counts();
            counts.deliveries().saturating_sub(counts.ended())
        });
        Self { ended: executor.as_ref().map_or(0, runs), executor, under_way }
    }

    /// Returns the number of runs that have begun and ended since the start.
    pub(super) fn so_far(&self) -> u64 {
        let ended = self.executor.as_ref().map_or(0, runs);
        ended.saturating_sub(self.ended).saturating_sub(self.under_way)
    }

    /// Counts runs that end while `delivery` is polled. Concurrent deliveries have separate counts.
    pub(super) async fn during<F: Future>(&self, delivery: F) -> (F::Output, u64) {
        let told = Arc::<AtomicU64>::default();
        let mut delivery = pin!(TOLD.scope(told.clone(), delivery));
        let mut counted = 0;
        let output = poll_fn(|cx| {
            let before = self.executor.as_ref().map_or(0, runs);
            let polled = delivery.as_mut().poll(cx);
            counted += self.executor.as_ref().map_or(0, runs).saturating_sub(before);
            polled
        })
        .await;
        // A mock in scope is counted in both ways.
        (output, counted.max(told.load(Ordering::Relaxed)))
    }
}

fn runs(executor: &Executor) -> u64 {
    let counts = executor.counts();
    RUNS.iter().map(|name| counts.of(name)).sum()
}

/// Returns the executor in scope. The installed executor is excluded, because other tests may use it at the same time.
fn in_scope() -> Option<Executor> {
    let executor = Executor::current()?;
    // A new thread is in no scope.
    let installed = std::thread::spawn(Executor::current).join().ok().flatten();
    let is_installed = installed.is_some_and(|installed| Arc::ptr_eq(installed.store(), executor.store()));
    (!is_installed).then_some(executor)
}
