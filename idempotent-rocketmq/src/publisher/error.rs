//! The error of a publisher.
use std::error::Error as StdError;
use std::fmt;

type ErrorCause = Box<dyn StdError + Send + Sync>;

/// An error for a message that is not confirmed. The [`kind`](Self::kind) shows whether the message may be stored.
#[derive(Debug)]
pub struct PublishError {
    kind: PublishErrorKind,
    text: Box<str>,
    cause: Option<ErrorCause>,
}

/// The known state of an unconfirmed message.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum PublishErrorKind {
    /// The message is not stored, and every retry fails the same way: access is denied, RocketMQ cannot transmit the message, or
    /// the topic is missing on brokers that do not create topics.
    Refused,
    /// The message is not stored: the topic is unknown, or its broker is busy or unreachable. A retry may succeed.
    NotSent,
    /// The message may be stored. Publish the message again with the same id.
    Unconfirmed,
}

impl PublishError {
    pub(super) fn new(kind: PublishErrorKind, text: impl Into<Box<str>>, cause: Option<ErrorCause>) -> Self {
        Self { kind, text: text.into(), cause }
    }

    /// Returns the known state of the message.
    #[must_use]
    pub fn kind(&self) -> PublishErrorKind {
        self.kind
    }
}

impl fmt::Display for PublishError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            PublishErrorKind::Refused => "message rejected permanently",
            PublishErrorKind::NotSent => "message not sent; retry",
            PublishErrorKind::Unconfirmed => "message unconfirmed; publish again with the same id",
        };
        write!(f, "{kind}: {}", self.text)
    }
}

impl StdError for PublishError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.cause.as_ref().map(|cause| &**cause as _)
    }
}
