//! What a source can do, and what it cannot.
use std::time::Duration;

use idempotent_core::Redelivery;

/// What a source can do, told once when a consumer is built.
///
/// ```
/// use std::time::Duration;
/// use idempotent_mq::{SourceCapabilities, DelaySupport};
///
/// // A stream whose unacknowledged entries are anybody's after a minute.
/// let idle = Duration::from_secs(60);
/// let capabilities = SourceCapabilities::new(DelaySupport::UpTo(idle)).keep_alive(idle / 3).counts();
/// assert_eq!(capabilities.keep_alive, Some(Duration::from_secs(20)));
/// ```
#[derive(Clone, Debug)]
#[must_use]
#[non_exhaustive]
pub struct SourceCapabilities {
    /// How well it keeps to [`Retry::after`](crate::Retry::after).
    pub delays: DelaySupport,
    /// How often held deliveries are to be kept alive; `None` if they need not be.
    pub keep_alive: Option<Duration>,
    /// Whether it fills in [`Delivery::delivered`](crate::Delivery::delivered).
    pub counts: bool,
    /// Whether what follows a delivery that is retried waits for it. A consumer that keeps the order of a key then gives
    /// back what is behind it, too.
    pub keeps_order: bool,
    /// How often and how far apart it redelivers at most, for the check at the start; `None` if it never gives up.
    pub redelivery: Option<Redelivery>,
}

/// How well a source keeps to the delay of a retry.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum DelaySupport {
    /// To any.
    Any,
    /// To any up to this. A longer one is made of several, by the consumer; they do not count as attempts.
    UpTo(Duration),
    /// Not at all: the broker has delays of its own. A retry may come earlier or later than asked for.
    ByBroker,
}

impl SourceCapabilities {
    /// A source that delays so, needs no keeping alive, does not count, does not keep order and never gives up.
    pub fn new(delays: DelaySupport) -> Self {
        Self { delays, keep_alive: None, counts: false, keeps_order: false, redelivery: None }
    }

    /// Held deliveries are to be kept alive this often: a third of the time after which the broker takes them back, so
    /// that one call may fail.
    pub fn keep_alive(mut self, every: Duration) -> Self {
        self.keep_alive = Some(every);
        self
    }

    /// It says how often it has delivered a message.
    pub fn counts(mut self) -> Self {
        self.counts = true;
        self
    }

    /// What follows a delivery that is retried waits for it.
    pub fn keeps_order(mut self) -> Self {
        self.keeps_order = true;
        self
    }

    /// It gives up. Say [`Redelivery::deferrals_are_free`] if a [`Retry`](crate::Retry) does not use up a redelivery.
    pub fn redelivery(mut self, redelivery: Redelivery) -> Self {
        self.redelivery = Some(redelivery);
        self
    }
}
