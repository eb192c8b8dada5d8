//! Counts of messages.
use std::time::Duration;

use super::replies::ReplyItems;

/// The number of messages of a topic, by state. See [`DelayQueue::counts`](crate::DelayQueue::counts).
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct DelayCounts {
    /// Messages that are due.
    pub ready: u64,
    /// Messages that are due later.
    pub waiting: u64,
    /// Messages in delivery, within their visibility timeout.
    pub in_flight: u64,
    /// Dead letters.
    pub dead: u64,
    /// Time for which the oldest due message has been due, or `None` if no message is due. More than a moment means
    /// that consumers do not keep up.
    pub oldest: Option<Duration>,
}

impl DelayCounts {
    pub(crate) fn read(items: &mut ReplyItems) -> Option<Self> {
        let (ready, waiting, in_flight, dead) = (items.number()?, items.number()?, items.number()?, items.number()?);
        let oldest = u64::try_from(items.signed()?).ok().map(Duration::from_micros);
        Some(Self { ready, waiting, in_flight, dead, oldest })
    }

    pub(crate) fn add(&mut self, other: Self) {
        self.ready += other.ready;
        self.waiting += other.waiting;
        self.in_flight += other.in_flight;
        self.dead += other.dead;
        self.oldest = self.oldest.max(other.oldest);
    }
}
