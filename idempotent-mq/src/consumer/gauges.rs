//! The current state of a consumer, for metrics.
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

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
        ConsumerGauges {
            held: counts.received.saturating_sub(counts.ended()),
            running: cells.running.load(Ordering::Relaxed),
            capacity: cells.capacity.load(Ordering::Relaxed),
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

    pub(super) fn handler_started(&self) {
        self.gauge_cells().running.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn handler_ended(&self) {
        self.gauge_cells().running.fetch_sub(1, Ordering::Relaxed);
    }

    /// Counts a running handler until the returned guard is dropped.
    pub(super) fn start_handler(&self) -> RunningHandler {
        self.handler_started();
        RunningHandler(self.clone())
    }
}

/// A guard that counts a running handler.
pub(super) struct RunningHandler(ConsumerCounters);

impl Drop for RunningHandler {
    fn drop(&mut self) {
        self.0.handler_ended();
    }
}
