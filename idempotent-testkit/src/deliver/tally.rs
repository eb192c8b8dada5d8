//! How many handlers ran in a delivery: its outcome is one, whatever number of handlers it calls.
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use idempotent_core::{Executor, Outcome};

tokio::task_local! {
    /// Runs that mocks have told of, in the delivery that is being polled.
    static TOLD: Arc<AtomicU64>;
}

/// A mock's run has ended so; counts for the delivery it is part of, if it is of one.
pub(crate) fn note(outcome: &Outcome) {
    if RUNS.contains(&outcome.name()) {
        let _ = TOLD.try_with(|told| told.fetch_add(1, Ordering::Relaxed));
    }
}

/// What a handler that ran to its end comes to, and a replay beside it would hide.
const RUNS: [&str; 2] = ["ran", "unprotected"];

/// Of the executor in scope: what it had counted by then.
pub(super) struct Tally {
    executor: Option<Executor>,
    /// Runs that had ended.
    ended: u64,
    /// Runs that may end meanwhile, and were none of this delivery.
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

    /// Runs that began since, and have ended.
    pub(super) fn so_far(&self) -> u64 {
        let ended = self.executor.as_ref().map_or(0, runs);
        ended.saturating_sub(self.ended).saturating_sub(self.under_way)
    }

    /// Runs that end while `delivery` is polled: of several that take turns, each has its own.
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
        // A mock in scope is counted both ways.
        (output, counted.max(told.load(Ordering::Relaxed)))
    }
}

fn runs(executor: &Executor) -> u64 {
    let counts = executor.counts();
    RUNS.iter().map(|name| counts.of(name)).sum()
}

/// The executor in scope; not the installed one, by which other tests may run handlers at the same time.
fn in_scope() -> Option<Executor> {
    let executor = Executor::current()?;
    // A new thread is in no scope.
    let installed = std::thread::spawn(Executor::current).join().ok().flatten();
    let is_installed = installed.is_some_and(|installed| Arc::ptr_eq(installed.store(), executor.store()));
    (!is_installed).then_some(executor)
}
