//! Publishing messages that the broker delivers later, by its delay levels.
use std::time::Duration;

use idempotent_core::{Clock, SystemClock, Timestamp};
use idempotent_mq::{OutboundMessage, PublishError, PublishErrorKind, Published};
use tokio::time::Instant;

use super::{PublisherState, RocketPublisher};
use crate::delay_levels::{DelayLevel, DelayLevels};

/// The resolution of the broker's clock, in which it compares a message's age with its delay, and the rounding of the two times.
const CLOCK_RESOLUTION: Duration = Duration::from_millis(2);

/// The time before which a message must not be delivered.
#[derive(Clone, Copy, Debug)]
pub(super) struct DueTime(Instant);

impl DueTime {
    /// Returns the level for the remaining delay, after a pause of up to 2 ms if the level would otherwise end within the
    /// resolution of the broker's clock.
    ///
    /// # Cancellation
    /// Safe.
    pub(super) async fn wait_for_level(&self, levels: &DelayLevels) -> DelayLevel {
        let (level, pause) = self.level_at(Instant::now(), levels);
        if !pause.is_zero() {
            tokio::time::sleep(pause).await;
        }
        level
    }

    /// Returns the level for a message that is sent at `now`, and the pause before sending.
    fn level_at(&self, now: Instant, levels: &DelayLevels) -> (DelayLevel, Duration) {
        let left = self.0.saturating_duration_since(now);
        if left.is_zero() {
            return (DelayLevel::default(), Duration::ZERO);
        }
        // The whole delay was checked to have a sufficient level, so its rest has one too.
        let level = levels.for_retry(left);
        (level, (left + CLOCK_RESOLUTION).saturating_sub(level.delay))
    }
}

impl RocketPublisher {
    /// Publishes a message that the broker delivers after this delay, in place of the message's
    /// [`deliver_at`](OutboundMessage::deliver_at). Returns when the broker has stored the message, which survives a restart of the
    /// broker. A delay of zero is an immediate [`publish`](Self::publish).
    ///
    /// A broker has few delays, its [delay levels](super::RocketPublisherBuilder::delay_levels). The publisher selects the shortest
    /// sufficient level, so the message is never early by the broker's clock. The level may exceed the delay by
    /// [`max_lateness`](super::RocketPublisherBuilder::max_lateness), 1 s by default. Every other delay is refused with an error that
    /// lists the levels.
    ///
    /// A delayed message cannot be cancelled. Its handler must check whether the work is still wanted.
    ///
    /// # Errors
    /// The errors of [`publish`](Self::publish). A delay without a suitable level is [`Refused`](PublishErrorKind::Refused).
    ///
    /// # Cancellation
    /// The message may be published.
    pub async fn publish_after(&self, message: &OutboundMessage, delay: Duration) -> Result<Published, PublishError> {
        let due = self.0.due_after(delay)?;
        self.publish_until(Instant::now() + self.0.give_up_after, message, Some(due)).await
    }

    /// Returns whether each delay up to the longest level is accepted.
    pub(super) fn accepts_all_delays(&self) -> bool {
        self.0.max_lateness >= self.0.delay_levels.largest_gap()
    }

    /// Returns the due time of a message, or `None` for immediate delivery.
    pub(super) fn due_time(&self, message: &OutboundMessage) -> Result<Option<DueTime>, PublishError> {
        message.deliver_at.map(|at| self.0.due_after(remaining(at))).transpose()
    }
}

impl PublisherState {
    /// Checks that a delay has a suitable level.
    fn due_after(&self, delay: Duration) -> Result<DueTime, PublishError> {
        let level = self.delay_levels.sufficient(delay);
        let suitable = level.filter(|level| level.delay - delay <= self.max_lateness);
        let due = Instant::now().checked_add(delay).filter(|_| suitable.is_some());
        due.map(DueTime).ok_or_else(|| {
            let levels = &self.delay_levels;
            let text = match level {
                Some(_) => format!(
                    "delay: no level is between {delay:?} and {:?} more, the publisher's max_lateness; use one of the \
                     levels {levels}, or raise max_lateness",
                    self.max_lateness
                ),
                None => format!(
                    "delay: {delay:?} is longer than all levels ({levels}); publish the message later, or keep it in a \
                     DelayTable until then"
                ),
            };
            PublishError::new(PublishErrorKind::Refused, text)
        })
    }
}

/// Returns the time until `at`, or zero for a past time.
fn remaining(at: Timestamp) -> Duration {
    at - SystemClock::new().wall()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn publisher(max_lateness: Duration) -> RocketPublisher {
        RocketPublisher::builder("rocketmq://h:1").max_lateness(max_lateness).build().unwrap()
    }

    #[test]
    fn a_delay_without_a_suitable_level_is_refused_with_all_levels_and_the_remedy() {
        let publisher = publisher(Duration::from_secs(1));
        let refused = |ms| publisher.0.due_after(Duration::from_millis(ms)).map(drop).map_err(|e| e.to_string());
        for accepted in [0, 1, 1_000, 4_000, 5_000, 1_799_000, 1_800_000, 7_200_000] {
            assert_eq!(refused(accepted), Ok(()), "{accepted} ms");
        }
        for (ms, words) in [(3_999, "raise max_lateness"), (1_800_001, "30m 1h 2h"), (7_200_001, "DelayTable")] {
            let text = refused(ms).unwrap_err();
            assert!(text.contains(words) && text.contains("1s 5s 10s"), "{ms} ms: {text}");
        }
    }

    #[test]
    fn all_delays_up_to_the_longest_level_are_accepted_if_the_lateness_covers_the_largest_gap() {
        let hour = Duration::from_secs(3_600);
        assert!(!publisher(hour - Duration::from_millis(1)).accepts_all_delays());
        let publisher = publisher(hour);
        assert!(publisher.accepts_all_delays());
        assert!((0..=7_200).all(|seconds| publisher.0.due_after(Duration::from_secs(seconds)).is_ok()));
        assert!(publisher.0.due_after(Duration::from_secs(7_201)).is_err());
    }

    #[test]
    fn the_level_never_ends_before_the_message_is_due() {
        let (levels, start) = (DelayLevels::default(), Instant::now());
        // An exact level; a level with some time to spare; the rest of a delay after a failed attempt; a delay that is over.
        for (delay, elapsed, number, pause) in
            [(30_000, 0, 4, 2), (30_000, 1, 4, 1), (30_000, 500, 4, 0), (5_000, 4_500, 1, 0), (5_000, 6_000, 0, 0)]
        {
            let now = start + Duration::from_millis(elapsed);
            let due = DueTime(start + Duration::from_millis(delay));
            let chosen = due.level_at(now, &levels);
            assert_eq!((chosen.0.number, chosen.1), (number, Duration::from_millis(pause)), "{delay} ms, {elapsed} ms");
            assert!(now + chosen.1 + chosen.0.delay >= due.0, "{delay} ms after {elapsed} ms");
        }
    }
}
