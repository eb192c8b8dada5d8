//! The capabilities of a source.
use std::time::Duration;

use idempotent_core::Redelivery;

/// The capabilities of a source, read once when a consumer is built.
///
/// ```
/// use std::time::Duration;
/// use idempotent_mq::{SourceCapabilities, DelaySupport};
///
/// // A stream that reassigns unacknowledged entries after a minute.
/// let idle = Duration::from_secs(60);
/// let capabilities = SourceCapabilities::new(DelaySupport::UpTo(idle)).keep_alive(idle / 3).counts();
/// assert_eq!(capabilities.keep_alive, Some(Duration::from_secs(20)));
/// ```
#[derive(Clone, Debug)]
#[must_use]
#[non_exhaustive]
pub struct SourceCapabilities {
    /// The support for [`Retry::after`](crate::Retry::after).
    pub delays: DelaySupport,
    /// The interval between calls of [`keep_alive`](crate::Settle::keep_alive), or `None` if they are not needed.
    pub keep_alive: Option<Duration>,
    /// True if the source sets [`Delivery::delivered`](crate::Delivery::delivered).
    pub counts: bool,
    /// True if later deliveries wait for a delivery that is retried. A consumer that keeps the order of a key then also defers
    /// the deliveries after it.
    pub keeps_order: bool,
    /// The maximum number of redeliveries and their intervals, for the check at the start. `None` if the source never gives up.
    pub redelivery: Option<Redelivery>,
}

/// The support of a source for the delay of a retry.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum DelaySupport {
    /// Any delay.
    Any,
    /// Any delay up to this one. The consumer splits a longer delay into several, which do not count as attempts.
    UpTo(Duration),
    /// No support: the broker uses its own delays. A retry may arrive earlier or later than requested.
    ByBroker,
}

impl SourceCapabilities {
    /// Creates the capabilities of a source that needs no keep-alive, does not count deliveries, does not keep order and never
    /// gives up.
    pub fn new(delays: DelaySupport) -> Self {
        Self { delays, keep_alive: None, counts: false, keeps_order: false, redelivery: None }
    }

    /// Sets the keep-alive interval. A third of the broker's visibility timeout lets one call fail.
    pub fn keep_alive(mut self, every: Duration) -> Self {
        self.keep_alive = Some(every);
        self
    }

    /// Declares that the source counts the deliveries of a message.
    pub fn counts(mut self) -> Self {
        self.counts = true;
        self
    }

    /// Declares that later deliveries wait for a delivery that is retried.
    pub fn keeps_order(mut self) -> Self {
        self.keeps_order = true;
        self
    }

    /// Sets the limit of redeliveries. Use [`Redelivery::deferrals_are_free`] if a [`Retry`](crate::Retry) does not consume a
    /// redelivery.
    pub fn redelivery(mut self, redelivery: Redelivery) -> Self {
        self.redelivery = Some(redelivery);
        self
    }
}
