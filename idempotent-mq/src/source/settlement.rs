//! Settlements of a delivery.
use std::borrow::Cow;
use std::time::Duration;

use idempotent_core::Timestamp;

/// The settlement of a delivery.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Settlement {
    /// Acknowledges the delivery: the broker never delivers the message again.
    Ack,
    /// Delivers the message again, later.
    Retry(Retry),
    /// Moves the message to the dead letters with unchanged body and headers, and acknowledges the original once that is
    /// confirmed.
    DeadLetter(DeadLetter),
    /// Returns the message to the broker unchanged and at once, if possible for another consumer, because this one shuts
    /// down. Not an attempt.
    GiveBack,
}

impl Settlement {
    /// Returns the name for logs and metrics.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Ack => "ack",
            Self::Retry(_) => "retry",
            Self::DeadLetter(_) => "dead letter",
            Self::GiveBack => "give back",
        }
    }
}

/// The conditions of a redelivery.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Retry {
    /// The minimum delay. At most the [`DelaySupport::UpTo`](crate::DelaySupport::UpTo) of the source.
    pub after: Duration,
    /// The number of the next attempt, to be stored with the message and read into
    /// [`Delivery::attempt`](crate::Delivery::attempt). One more if this delivery was an attempt, and unchanged after a deferral.
    pub attempt: u32,
    /// The time of the first delivery, to be stored with the message and read into
    /// [`Delivery::first_at`](crate::Delivery::first_at).
    pub first_at: Timestamp,
    /// The reason in a few words, without the key and the payload.
    pub reason: Cow<'static, str>,
}

impl Retry {
    /// Creates a retry after a first attempt that was first delivered `now`. For tests of adapters.
    #[must_use]
    pub fn after(after: Duration, now: Timestamp) -> Self {
        Self { after, attempt: 2, first_at: now, reason: Cow::Borrowed("the handler failed") }
    }
}

/// The data that an adapter stores with a dead-lettered message.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct DeadLetter {
    /// The reason in a few words. Contains the key only as a hash, and the payload only if the handler's reason does.
    pub reason: Cow<'static, str>,
    /// The hash of the key and the fencing token of its last run. Copies of one dead letter share the id, so a broker that
    /// drops duplicates can collapse them. `None` if the key did not fail: unrelated messages must not collapse.
    pub id: Option<String>,
    /// The number of the last known attempt.
    pub attempts: u32,
    /// The time of the first delivery.
    pub first_at: Timestamp,
    /// The time of the dead-lettering.
    pub last_at: Timestamp,
    /// The number of dead-letterings of the message, including this one. Read into
    /// [`Delivery::deaths`](crate::Delivery::deaths).
    pub deaths: u32,
}

impl DeadLetter {
    /// Creates a dead letter after a first attempt, dead-lettered `now` for the first time. For tests of adapters.
    #[must_use]
    pub fn because(reason: impl Into<Cow<'static, str>>, now: Timestamp) -> Self {
        Self { reason: reason.into(), id: None, attempts: 1, first_at: now, last_at: now, deaths: 1 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settlements_have_different_names() {
        let now = Timestamp::default();
        let retry = Retry { after: Duration::ZERO, attempt: 1, first_at: now, reason: Cow::Borrowed("") };
        let all = [
            Settlement::Ack,
            Settlement::Retry(retry),
            Settlement::DeadLetter(DeadLetter::because("", now)),
            Settlement::GiveBack,
        ];
        assert_eq!(all.map(|settlement| settlement.name()), ["ack", "retry", "dead letter", "give back"]);
    }
}
