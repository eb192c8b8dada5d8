//! What a source is told to do with a delivery.
use std::borrow::Cow;
use std::time::Duration;

use idempotent_core::Timestamp;

/// What a source is to do with a delivery.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Settlement {
    /// Done: never deliver it again.
    Ack,
    /// Deliver it again, later.
    Retry(Retry),
    /// Put it aside where a person finds it, body and headers as they came; acknowledge it once that is confirmed.
    DeadLetter(DeadLetter),
    /// Deliver it again as it is, now, and not to this consumer if that can be helped: it is shutting down. Not an
    /// attempt.
    GiveBack,
}

impl Settlement {
    /// Its name in logs and metrics.
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

/// How a delivery is to come again.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Retry {
    /// Not before. Never more than [`DelaySupport::UpTo`](crate::DelaySupport::UpTo) of the source.
    pub after: Duration,
    /// To be left on the message, and read back into [`Delivery::attempt`](crate::Delivery::attempt): one more if this
    /// delivery was an attempt, the same if it was only put off.
    pub attempt: u32,
    /// To be left on the message, and read back into [`Delivery::first_at`](crate::Delivery::first_at).
    pub first_at: Timestamp,
    /// Why, in a few words; no key and nothing of the payload.
    pub reason: Cow<'static, str>,
}

impl Retry {
    /// A retry of a first attempt after this time, first seen now; for tests of adapters.
    #[must_use]
    pub fn after(after: Duration, now: Timestamp) -> Self {
        Self { after, attempt: 2, first_at: now, reason: Cow::Borrowed("the handler failed") }
    }
}

/// What is to be left on a message that is put aside.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct DeadLetter {
    /// Why, in a few words; no key but by its hash, and nothing of the payload, unless the handler's own reason has it.
    pub reason: Cow<'static, str>,
    /// Hash of the key, and fencing number of its last run: copies of one dead letter have one id, and can be
    /// collapsed where the broker drops duplicates. `None` if it is not its key that failed: messages that have nothing
    /// in common with each other must not collapse.
    pub id: Option<String>,
    /// Which attempt was its last, as far as anybody knows.
    pub attempts: u32,
    /// When it was first seen.
    pub first_at: Timestamp,
    /// When it was given up.
    pub last_at: Timestamp,
    /// How often it was put aside, this time included. To be read back into
    /// [`Delivery::deaths`](crate::Delivery::deaths).
    pub deaths: u32,
}

impl DeadLetter {
    /// A dead letter of a first attempt, put aside now for the first time; for tests of adapters.
    #[must_use]
    pub fn because(reason: impl Into<Cow<'static, str>>, now: Timestamp) -> Self {
        Self { reason: reason.into(), id: None, attempts: 1, first_at: now, last_at: now, deaths: 1 }
    }
}
