//! The current state of a consumer, for metrics.
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use tokio::sync::Semaphore;

use super::ConsumerCounters;

/// The current state of a consumer, returned by [`ConsumerCounters::gauges`].
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct ConsumerGauges {
    /// Unsettled deliveries, whether they run or wait.
    pub held: u64,
    /// Deliveries whose handlers run.
    pub running: u64,
    /// The [concurrency](crate::ConsumerBuilder::concurrency).
    pub capacity: u64,
    /// True while the intake is paused because the store is down.
    pub paused: bool,
    /// Nodes of the store that do not answer, and whose deliveries are deferred.
    pub failed_nodes: u64,
}

#[derive(Debug, Default)]
pub(super) struct GaugeCells {
    running: AtomicU64,
    turns: OnceLock<Arc<Semaphore>>,
    capacity: AtomicU64,
    paused: AtomicBool,
    failed_nodes: AtomicU64,
}

impl ConsumerCounters {
    /// Returns the current state of the consumer. The values are read one after another, so they may differ by the deliveries
    /// that end meanwhile.
    #[must_use]
    pub fn gauges(&self) -> ConsumerGauges {
        let (cells, counts) = (self.gauge_cells(), self.counts());
        let capacity = cells.capacity.load(Ordering::Relaxed);
        let taken = |turns: &Arc<Semaphore>| capacity.saturating_sub(turns.available_permits() as u64);
        ConsumerGauges {
            held: counts.received.saturating_sub(counts.ended()),
            running: cells.turns.get().map_or_else(|| cells.running.load(Ordering::Relaxed), taken),
            capacity,
            paused: cells.paused.load(Ordering::Relaxed),
            failed_nodes: cells.failed_nodes.load(Ordering::Relaxed),
        }
    }

    pub(super) fn set_capacity(&self, concurrency: usize) {
        self.gauge_cells().capacity.store(concurrency as u64, Ordering::Relaxed);
    }

    pub(super) fn set_paused(&self, paused: bool) {
        self.gauge_cells().paused.store(paused, Ordering::Relaxed);
    }

    pub(super) fn set_failed_nodes(&self, nodes: usize) {
        self.gauge_cells().failed_nodes.store(nodes as u64, Ordering::Relaxed);
    }

    /// Counts the permits that handlers have taken from this semaphore.
    pub(super) fn count_turns(&self, turns: Arc<Semaphore>) {
        // Called once for each consumer.
        let _ = self.gauge_cells().turns.set(turns);
    }

    /// Counts a running handler until the returned guard is dropped.
    pub(super) fn start_handler(&self) -> RunningHandler {
        self.gauge_cells().running.fetch_add(1, Ordering::Relaxed);
        RunningHandler(self.clone())
    }
}

/// A guard that counts a running handler.
pub(super) struct RunningHandler(ConsumerCounters);

impl Drop for RunningHandler {
    fn drop(&mut self) {
        self.0.gauge_cells().running.fetch_sub(1, Ordering::Relaxed);
    }
}
