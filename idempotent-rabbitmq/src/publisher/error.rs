//! Errors of publishing.
use std::error::Error as StdError;
use std::fmt;

/// An error of a message that is not known to be in a queue: a [`kind`](Self::kind) for decisions, and the cause.
#[derive(Debug)]
pub struct PublishError {
    kind: PublishErrorKind,
    text: &'static str,
    cause: Option<lapin::Error>,
    /// True if the broker refused the connection, so the last try did not reach the broker.
    unconnected: bool,
}

/// The known state of the message.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum PublishErrorKind {
    /// The message is in no queue, because no queue is bound for it. This holds until a program declares or binds one.
    Unroutable,
    /// The message is in no queue: the exchange is missing, access is denied, or a limit of the protocol is exceeded.
    /// A retry would fail in the same way.
    Refused,
    /// The message is in no queue: the broker was unreachable, or could not store the message. A retry may succeed.
    NotSent,
    /// The state is unknown. Publish the message again, under the same id.
    Unconfirmed,
}

impl PublishError {
    pub(super) fn new(kind: PublishErrorKind, text: &'static str, cause: Option<lapin::Error>) -> Self {
        Self { kind, text, cause, unconnected: false }
    }

    /// Marks the error as an error of a refused connection.
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
            PublishErrorKind::Unroutable => "not published, no queue is bound for it",
            PublishErrorKind::Refused => "not published, and a retry would fail",
            PublishErrorKind::NotSent => "not published, retry later",
            PublishErrorKind::Unconfirmed => "state unknown, publish it again under the same id",
        };
        write!(f, "{kind}: {}", self.text)
    }
}

impl StdError for PublishError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.cause.as_ref().map(|cause| cause as _)
    }
}
