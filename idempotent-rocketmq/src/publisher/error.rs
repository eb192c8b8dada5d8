//! Why a message is not known to be in its topic.
use std::error::Error as StdError;
use std::fmt;

type Cause = Box<dyn StdError + Send + Sync>;

/// A message that is not known to be in its topic: a [`kind`](Self::kind) to decide on, and what happened.
#[derive(Debug)]
pub struct PublishError {
    kind: PublishErrorKind,
    text: Box<str>,
    cause: Option<Cause>,
}

/// What is known of the message.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum PublishErrorKind {
    /// In no topic: no access, more than RocketMQ takes, or no topic of that name where brokers make none. Another try would
    /// fail the same way.
    Refused,
    /// In no topic: nobody knows it, or its broker cannot be reached, or is busy. Another try may go well.
    NotSent,
    /// Nobody knows. Send it again, under the same id.
    Unconfirmed,
}

impl PublishError {
    pub(super) fn new(kind: PublishErrorKind, text: impl Into<Box<str>>, cause: Option<Cause>) -> Self {
        Self { kind, text: text.into(), cause }
    }

    /// What is known of the message.
    #[must_use]
    pub fn kind(&self) -> PublishErrorKind {
        self.kind
    }
}

impl fmt::Display for PublishError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            PublishErrorKind::Refused => "not published, and never will be as it is",
            PublishErrorKind::NotSent => "not published, try again",
            PublishErrorKind::Unconfirmed => "perhaps published, send it again under the same id",
        };
        write!(f, "{kind}: {}", self.text)
    }
}

impl StdError for PublishError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.cause.as_ref().map(|cause| &**cause as _)
    }
}
