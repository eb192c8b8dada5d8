//! Why a message is not known to be in a queue.
use std::error::Error as StdError;
use std::fmt;

/// A message that is not known to be in a queue: a [`kind`](Self::kind) to decide on, and what happened.
#[derive(Debug)]
pub struct PublishError {
    kind: PublishErrorKind,
    text: &'static str,
    cause: Option<lapin::Error>,
    /// The broker refused the connection; the last try did not reach it.
    unconnected: bool,
}

/// What is known of the message.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum PublishErrorKind {
    /// In no queue: none is bound for it. It stays so until somebody declares or binds one.
    Unroutable,
    /// In no queue: no such exchange, no access, or more than the protocol allows. Another try would fail the same way.
    Refused,
    /// In no queue: the broker was away, or could not keep it. Another try may go well.
    NotSent,
    /// Nobody knows. Send it again, under the same id.
    Unconfirmed,
}

impl PublishError {
    pub(super) fn new(kind: PublishErrorKind, text: &'static str, cause: Option<lapin::Error>) -> Self {
        Self { kind, text, cause, unconnected: false }
    }

    /// Marks the error as one of a connection that the broker refused.
    pub(super) fn without_connection(self) -> Self {
        Self { unconnected: true, ..self }
    }

    pub(super) fn is_unconnected(&self) -> bool {
        self.unconnected
    }

    pub(super) fn refused(text: &'static str) -> Self {
        Self::new(PublishErrorKind::Refused, text, None)
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
            PublishErrorKind::Unroutable => "not published, nothing is bound for it",
            PublishErrorKind::Refused => "not published, and never will be as it is",
            PublishErrorKind::NotSent => "not published, try again",
            PublishErrorKind::Unconfirmed => "perhaps published, send it again under the same id",
        };
        write!(f, "{kind}: {}", self.text)
    }
}

impl StdError for PublishError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.cause.as_ref().map(|cause| cause as _)
    }
}
