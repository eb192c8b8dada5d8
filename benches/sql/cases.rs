//! Whole runs through the executor, compared with the floor.
use std::sync::Arc;

use idempotent::store::MemoryTier;
use idempotent::{Executor, Store, TieredStore};

use crate::by_hand::ByHand;
use crate::ours;
use crate::report::{Goal, Report, drive};

/// The numbers of concurrent tasks: one consumer, and a prefetch.
pub const CONCURRENCIES: [u64; 2] = [1, 16];

pub const FRESH: &str = "fresh";
pub const DUPLICATE: &str = "duplicate";
pub const CACHED: &str = "claims of the store for a cached duplicate";

/// A database with the store, the floor and the goals.
pub struct Side {
    pub name: &'static str,
    pub store: Arc<dyn Store>,
    pub by_hand: Arc<dyn ByHand>,
    pub goals: Goals,
    /// The messages of a round, by concurrency. A single message waits for the disk twice.
    pub messages: [u64; 2],
}

/// The goals for the ratios.
#[derive(Clone, Copy)]
pub struct Goals {
    pub fresh: f64,
    pub duplicate: f64,
    /// The results by [concurrency](CONCURRENCIES).
    pub batch: [Goal; 2],
}

/// The number of rounds in a measurement.
const ROUNDS: u64 = 11;

pub async fn fresh_and_duplicates(report: &Report, side: &Side) {
    if !report.wants(side.name, FRESH) && !report.wants(side.name, DUPLICATE) {
        return;
    }
    let executor = Executor::new(side.store.clone());
    let ours = {
        let executor = executor.clone();
        move |number| ours::run(executor.clone(), number)
    };
    let (cycle, look) = (side.by_hand.clone(), side.by_hand.clone());
    let cycle = move |number| {
        let by_hand = cycle.clone();
        async move { by_hand.cycle(number).await }
    };
    let rounds = |at: usize, factor| report.rounds(ROUNDS, side.messages[at] * factor, CONCURRENCIES[at]);
    // Creates the duplicated keys, and connections for all tasks.
    let known = rounds(1, 1).operations;
    drive(16, 0, known, &Arc::new(ours.clone())).await;
    drive(16, 0, known, &Arc::new(cycle.clone())).await;
    let again = {
        let ours = ours.clone();
        move |number| ours(number % known)
    };
    let look = move |number| {
        let by_hand = look.clone();
        async move { by_hand.look(number % known).await }
    };
    let mut from = known;
    for (at, tasks) in CONCURRENCIES.into_iter().enumerate() {
        let at_once = usize::try_from(tasks).ok();
        let (fresh, duplicates) = (rounds(at, 1), rounds(at, 4));
        let pair = fresh.nanos(from, ours.clone(), cycle.clone()).await;
        report.pair((side.name, FRESH, at_once), "runs/s", pair.rates(), Goal::AtLeast(side.goals.fresh));
        from += fresh.rounds * fresh.operations;
        let pair = duplicates.nanos(0, again.clone(), look.clone()).await;
        report.pair((side.name, DUPLICATE, at_once), "runs/s", pair.rates(), Goal::AtLeast(side.goals.duplicate));
    }
    assert_eq!(executor.counts().of("ran"), from);
}

/// Measures keys that this process has seen consumed, which need no call.
pub async fn cached(report: &Report, side: &Side) {
    if !report.wants(side.name, CACHED) {
        return;
    }
    let tiered = TieredStore::new(side.store.clone(), MemoryTier::new());
    let executor = Executor::new(tiered.clone());
    // An unused range of numbers.
    let (from, messages) = (1 << 40, if report.is_tried() { 16 } else { 256 });
    for round in 0..2 {
        for number in from..from + messages {
            ours::run(executor.clone(), number).await;
        }
        assert_eq!(executor.counts().of("ran"), messages, "round {round}");
    }
    let asked = tiered.counts().misses - messages;
    report.value((side.name, CACHED, Some(1)), "claims", asked as f64 / messages as f64, Goal::AtMost(0.0));
}
