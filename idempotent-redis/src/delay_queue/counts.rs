//! How many messages there are.
use std::time::Duration;

use super::reply_items::ReplyItems;

/// How many messages a topic has, as of [`DelayQueue::counts`](crate::DelayQueue::counts).
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct DelayCounts {
    /// Would be delivered now.
    pub ready: u64,
    /// Their time has not come.
    pub waiting: u64,
    /// With a consumer, whose time to settle them is not over.
    pub in_flight: u64,
    /// Dead letters.
    pub dead: u64,
    /// For how long the one has been ready that has been so for longest; `None` if none is. More than a moment means
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
