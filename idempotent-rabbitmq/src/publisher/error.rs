//! The error of a publisher.
use std::error::Error as StdError;
use std::fmt;

/// An error for a message that is not confirmed. The [`kind`](Self::kind) shows whether the message may be in a queue.
#[derive(Debug)]
pub struct PublishError {
    kind: PublishErrorKind,
    text: &'static str,
    cause: Option<lapin::Error>,
    /// True if the broker refused the connection, so the last attempt sent nothing.
    unconnected: bool,
}

/// The known state of an unconfirmed message.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum PublishErrorKind {
    /// The message is in no queue, since none is bound for it. A retry fails the same way until a queue is declared or
    /// bound.
    Unroutable,
    /// The message is in no queue, and every retry fails the same way: the exchange is missing, access is denied, or
    /// the message exceeds a limit of the protocol.
    Refused,
    /// The message is in no queue: the broker was unreachable, or rejected the message for now. A retry may succeed.
    NotSent,
    /// The message may be in a queue. Publish the message again with the same id.
    Unconfirmed,
}

impl PublishError {
    pub(super) fn new(kind: PublishErrorKind, text: &'static str, cause: Option<lapin::Error>) -> Self {
        Self { kind, text, cause, unconnected: false }
    }

    /// Marks the error as the refusal of a connection.
    pub(super) fn without_connection(self) -> Self {
        Self { unconnected: true, ..self }
    }

    pub(super) fn is_unconnected(&self) -> bool {
        self.unconnected
    }

    pub(super) fn refused(text: &'static str) -> Self {
        Self::new(PublishErrorKind::Refused, text, None)
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
            PublishErrorKind::Unroutable => "message unroutable",
            PublishErrorKind::Refused => "message rejected permanently",
            PublishErrorKind::NotSent => "message not sent; retry",
            PublishErrorKind::Unconfirmed => "message unconfirmed; publish again with the same id",
        };
        write!(f, "{kind}: {}", self.text)
    }
}

impl StdError for PublishError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.cause.as_ref().map(|cause| cause as _)
    }
}
