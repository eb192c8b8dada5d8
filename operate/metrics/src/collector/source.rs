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

    /// Sets the gauges to NaN.
    fn set_unknown(&self, recording: &Recording);
}

/// A counter that follows a total. A collector adds differences, since some exporters ignore absolute values.
pub(super) struct FollowedTotal {
    counter: Counter,
    last: u64,
}

impl FollowedTotal {
    /// Returns a follower of a total that began at 0.
    pub(super) fn new(counter: Counter) -> Self {
        Self { counter, last: 0 }
    }

    pub(super) fn follow(&mut self, total: u64) {
        self.counter.increment(total.saturating_sub(self.last));
        self.last = self.last.max(total);
    }
}
