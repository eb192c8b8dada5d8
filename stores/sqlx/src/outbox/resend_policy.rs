//! The decision whether a message is sent, or sent again: a pure function without I/O or clock.
//!
//! Five conditions must hold: the message is unconfirmed, it is due, no consumer is processing it, it is lost, and
//! sends remain. Offsets are compared within one queue only, and a log row that is older than any run blocks nothing.
use std::time::Duration;

use idempotent_core::__private::backoff::delay;
use idempotent_core::Timestamp;

use super::queue_offset::QueueOffset;
use super::record::{OutboxRecord, OutboxStatus};

/// The rules for resending messages: when, and how often.
#[derive(Clone, Debug, Eq, PartialEq)]
#[must_use]
pub struct ResendPolicy {
    pub(crate) max_sends: u32,
    pub(crate) first: Duration,
    pub(crate) most: Duration,
    pub(crate) backlog: Duration,
    pub(crate) log_age: Duration,
    pub(crate) look_again: Duration,
    pub(crate) quiet: Duration,
}

impl Default for ResendPolicy {
    fn default() -> Self {
        const MINUTE: Duration = Duration::from_secs(60);
        Self {
            max_sends: 16,
            first: MINUTE,
            most: MINUTE * 60,
            backlog: MINUTE,
            log_age: MINUTE * 15,
            look_again: MINUTE,
            quiet: MINUTE * 60 * 24,
        }
    }
}

impl ResendPolicy {
    /// Creates a policy with the default values.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the maximum number of sends of a message, at least 1. A message that is due again after that becomes
    /// [dead](OutboxStatus::Dead), and the relay sends an alert.
    ///
    /// # Default
    /// 16
    pub fn max_sends(mut self, sends: u32) -> Self {
        self.max_sends = sends.max(1);
        self
    }

    /// Sets the delay before a message may be resent after its first send. The delay doubles with each send, up to
    /// `most`.
    ///
    /// # Default
    /// 1 min, up to 1 h
    pub fn backoff(mut self, first: Duration, most: Duration) -> Self {
        (self.first, self.most) = (first, most.max(first));
        self
    }

    /// Sets how long a message may wait in its queue before a consumer receives it. This time is added to the
    /// backoff.
    ///
    /// # Default
    /// 1 min
    pub fn backlog(mut self, backlog: Duration) -> Self {
        self.backlog = backlog;
        self
    }

    /// Sets the age after which a row of the message log counts as left over from a consumer that has died. Choose a
    /// value above the policy's `max_run`.
    ///
    /// # Default
    /// 15 min
    pub fn log_age(mut self, age: Duration) -> Self {
        self.log_age = age;
        self
    }

    /// Sets the delay before a message is checked again that is due but not lost: the message waits in its queue, or
    /// a consumer is processing it. At least 1 ms.
    ///
    /// # Default
    /// 1 min
    pub fn look_again(mut self, after: Duration) -> Self {
        self.look_again = after.max(Duration::from_millis(1));
        self
    }

    /// Sets the time after which a sent message counts as lost even if no consumer has received a later message of
    /// its queue. An example is the last message of a queue that was lost and receives no others.
    ///
    /// # Default
    /// 24 h
    pub fn quiet(mut self, quiet: Duration) -> Self {
        self.quiet = quiet;
        self
    }

    /// Returns the delay before a message may be resent after `sends` sends.
    #[must_use]
    pub fn next(&self, sends: u32) -> Duration {
        delay(self.first, self.most, sends.saturating_sub(1), 0, 0).saturating_add(self.backlog)
    }

    /// Returns the decision for a message.
    #[must_use]
    pub fn decide(&self, record: &OutboxRecord, seen: &ConsumerProgress, now: Timestamp) -> ResendDecision {
        if record.status != OutboxStatus::Unconfirmed {
            return ResendDecision::Leave;
        }
        if record.due_at.is_none_or(|due| due > now) {
            return ResendDecision::Wait(DeferReason::NotDue);
        }
        if seen.is_being_consumed(now, self.log_age) {
            return ResendDecision::Wait(DeferReason::BeingConsumed);
        }
        if !self.is_lost(record, seen, now) {
            return ResendDecision::Wait(DeferReason::Queued);
        }
        if record.sends < self.max_sends { ResendDecision::Send } else { ResendDecision::GiveUp }
    }

    /// Returns whether the message has left the broker without being consumed, as far as the outbox can know.
    fn is_lost(&self, record: &OutboxRecord, seen: &ConsumerProgress, now: Timestamp) -> bool {
        let (Some(sent_at), Some(place)) = (record.sent_at, record.place) else {
            // The broker never confirmed the message; or offsets cannot be compared, and only the time decides.
            return true;
        };
        // The log row of a consumer that had the message and has died.
        seen.logged_at.is_some() || seen.reached.is_some_and(|reached| place < reached) || (now - sent_at) >= self.quiet
    }
}

/// The information that consumers have recorded about a message and its queue.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct ConsumerProgress {
    /// The time at which the message's row in the log was written, if the log has one.
    pub logged_at: Option<Timestamp>,
    /// The highest offset that a consumer has received from the queue to which the message was sent. Offsets of other
    /// queues are not comparable.
    pub reached: Option<QueueOffset>,
}

impl ConsumerProgress {
    fn is_being_consumed(&self, now: Timestamp, log_age: Duration) -> bool {
        self.logged_at.is_some_and(|at| (now - at) < log_age)
    }
}

/// Returns the decision for a message.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum ResendDecision {
    /// The message is sent.
    Send,
    /// The maximum number of sends is reached. The message is given up with an alert.
    GiveUp,
    /// The message is checked again later.
    Wait(DeferReason),
    /// The message is settled and never sent again.
    Leave,
}

/// The reason for which a message is not sent now.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum DeferReason {
    /// The message is not due yet.
    NotDue,
    /// A consumer is processing the message.
    BeingConsumed,
    /// No consumer has reached the message's offset in its queue.
    Queued,
}

#[cfg(test)]
#[allow(clippy::expect_used)]
#[path = "resend_policy_tests.rs"]
mod tests;
