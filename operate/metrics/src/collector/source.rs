//! The sources of a collector.
use async_trait::async_trait;
use metrics::Counter;

use crate::recording::Recording;

/// A component whose counts and sizes are read.
#[async_trait]
pub(super) trait Source: Send {
    /// Returns the name of the source, as its kind and the user's name.
    fn name(&self) -> String;

    /// Reads the component and records its values. Returns false if the component does not answer.
    async fn read(&mut self, recording: &Recording) -> bool;

    /// Sets the gauges to NaN, if the source has any that can be unknown.
    fn set_unknown(&self, _: &Recording) {}
}

/// Counters that follow totals, which began at 0. A collector adds differences, since some exporters ignore absolute values.
pub(super) struct FollowedTotals<const N: usize>([(Counter, u64); N]);

impl<const N: usize> FollowedTotals<N> {
    pub(super) fn new(counters: [Counter; N]) -> Self {
        Self(counters.map(|counter| (counter, 0)))
    }

    pub(super) fn follow(&mut self, totals: [u64; N]) {
        for ((counter, last), total) in self.0.iter_mut().zip(totals) {
            counter.increment(total.saturating_sub(*last));
            *last = total.max(*last);
        }
    }
}

/// A component of this process that has only totals, which `counts` returns.
pub(super) struct TotalsSource<F, const N: usize> {
    pub(super) name: String,
    pub(super) totals: FollowedTotals<N>,
    pub(super) counts: F,
}

#[async_trait]
impl<F: Fn() -> [u64; N] + Send, const N: usize> Source for TotalsSource<F, N> {
    fn name(&self) -> String {
        self.name.clone()
    }

    async fn read(&mut self, _: &Recording) -> bool {
        self.totals.follow((self.counts)());
        true
    }
}
