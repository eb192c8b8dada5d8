//! The time at which a delayed message is due.
use std::time::Duration;

use idempotent_mq::PublishError;
use tokio::time::Instant;

use crate::delay_queues::{DelayPath, DelayTopology};
use crate::message::refused;
use crate::route::Route;

/// The time before which a message must not be delivered.
#[derive(Debug)]
pub(super) struct DueTime(Instant);

impl DueTime {
    /// Returns the time after this delay.
    ///
    /// # Errors
    /// The topology does not support the delay.
    pub(super) fn after(delay: Duration, delays: &DelayTopology) -> Result<Self, PublishError> {
        match Instant::now().checked_add(delay).filter(|_| delay <= delays.max_delay()) {
            Some(due) => Ok(Self(due)),
            None if delays.is_plugin() => Err(refused(
                "delay: longer than 49 days, the maximum of the plugin; use a shorter delay, or \
                 DelayTopology::quorum() with a maximum of 13 years",
            )),
            None => Err(refused("delay: longer than the maximum of 13 years; publish the message later")),
        }
    }

    /// Returns the path for the remaining delay, or `None` if the message is due.
    pub(super) fn path(&self, delays: &DelayTopology, to: &Route) -> Option<DelayPath> {
        let left = self.0.saturating_duration_since(Instant::now());
        (!left.is_zero()).then(|| delays.path(left, to))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_delay_beyond_the_maximum_is_an_error_with_a_remedy() {
        let years = Duration::from_secs(14 * 365 * 86_400);
        for (delays, remedy) in
            [(DelayTopology::quorum(), "publish the message later"), (DelayTopology::plugin(), "use a shorter delay")]
        {
            let error = DueTime::after(years, &delays).map(drop).unwrap_err();
            assert!(error.to_string().contains(remedy), "{error}");
        }
    }
}
