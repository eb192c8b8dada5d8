//! Whether a message is sent (again). Pure: no I/O, no clock.
//!
//! S3's five conditions, corrected: its third one is written the wrong way round (a message is sent once its next time has
//! *come*), offsets are compared within one queue only, and a row of the log that is older than any run blocks nothing.
use std::time::Duration;

use idempotent_core::__private::backoff::delay;
use idempotent_core::Timestamp;

use super::queue_offset::QueueOffset;
use super::record::{OutboxRecord, OutboxStatus};

/// When messages are sent again, and how often.
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
    /// The defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// A message is sent so often at most, at least once; one that is due again after that is
    /// [dead](OutboxStatus::Dead), and an alert goes out.
    ///
    /// # Default
    /// 16
    pub fn max_sends(mut self, sends: u32) -> Self {
        self.max_sends = sends.max(1);
        self
    }

    /// How long after its first sending a message may be sent again: doubled with each sending, up to `most`.
    ///
    /// # Default
    /// 1 min, up to 1 h
    pub fn backoff(mut self, first: Duration, most: Duration) -> Self {
        (self.first, self.most) = (first, most.max(first));
        self
    }

    /// How long a message may wait in its queue before its consumer takes it: comes on top of the backoff.
    ///
    /// # Default
    /// 1 min
    pub fn backlog(mut self, backlog: Duration) -> Self {
        self.backlog = backlog;
        self
    }

    /// A row of the message log that is older than this was left by a consumer that is gone. Longer than any run: above the
    /// policy's `max_run`.
    ///
    /// # Default
    /// 15 min
    pub fn log_age(mut self, age: Duration) -> Self {
        self.log_age = age;
        self
    }

    /// How soon a message is looked at again that is due and not lost: it waits in its queue, or is being consumed.
    ///
    /// # Default
    /// 1 min
    pub fn look_again(mut self, after: Duration) -> Self {
        self.look_again = after.max(Duration::from_millis(1));
        self
    }

    /// A message that was sent longer ago than this counts as lost also where no consumer has passed its place: as the last
    /// one of a queue that was lost and gets no others.
    ///
    /// # Default
    /// 24 h
    pub fn quiet(mut self, quiet: Duration) -> Self {
        self.quiet = quiet;
        self
    }

    /// From a sending, which was the `sends`th, to the time from which on it may be sent again.
    #[must_use]
    pub fn next(&self, sends: u32) -> Duration {
        delay(self.first, self.most, sends.saturating_sub(1), 0, 0).saturating_add(self.backlog)
    }

    /// What is to be done with a message.
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

    /// Not with the broker any more, nor on its way, as far as can be told.
    fn is_lost(&self, record: &OutboxRecord, seen: &ConsumerProgress, now: Timestamp) -> bool {
        let (Some(sent_at), Some(place)) = (record.sent_at, record.place) else {
            // Never confirmed to be anywhere; or where places cannot be compared, so that time alone says it.
            return true;
        };
        // A row that was left behind: a consumer had it, and is gone.
        seen.logged_at.is_some() || seen.reached.is_some_and(|reached| place < reached) || (now - sent_at) >= self.quiet
    }
}

/// What consumers have noted about a message and its queue.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct ConsumerProgress {
    /// When its row in the message log was written, if there is one.
    pub logged_at: Option<Timestamp>,
    /// The last place that a consumer has seen in the queue the message was sent to. Of that queue only: places of others
    /// say nothing.
    pub reached: Option<QueueOffset>,
}

impl ConsumerProgress {
    fn is_being_consumed(&self, now: Timestamp, log_age: Duration) -> bool {
        self.logged_at.is_some_and(|at| (now - at) < log_age)
    }
}

/// What is to be done with a message.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum ResendDecision {
    /// Send it.
    Send,
    /// It was sent as often as is allowed: no more, and somebody is to be told.
    GiveUp,
    /// Look at it later.
    Wait(DeferReason),
    /// It is settled: nothing, ever.
    Leave,
}

/// Why a message is not sent now.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum DeferReason {
    /// Its next time has not come.
    NotDue,
    /// A consumer has it.
    BeingConsumed,
    /// No consumer has come to its place in the queue.
    Queued,
}

#[cfg(test)]
#[allow(clippy::expect_used)]
#[path = "resend_policy_tests.rs"]
mod tests;
