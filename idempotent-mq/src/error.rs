//! What can go wrong between a consumer and its broker.
use std::error::Error as StdError;
use std::fmt;

use idempotent_core::{KeyError, PolicyError};

type Cause = Box<dyn StdError + Send + Sync>;

/// An error of a source: a [`kind`](Self::kind) to decide on, a context and a cause to read.
#[derive(Debug)]
pub struct SourceError {
    kind: SourceErrorKind,
    context: Box<str>,
    cause: Option<Cause>,
}

/// What a consumer may conclude from a [`SourceError`].
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum SourceErrorKind {
    /// Worth another try, by another connection perhaps.
    Transient,
    /// The delivery is not this consumer's any more: its channel was closed, its time to settle is over, its partition
    /// was revoked. The broker delivers it again by itself, so there is nothing to do.
    Gone,
    /// Another try would fail the same way: no access, no such queue, an operation the broker does not have.
    Fatal,
}

impl SourceError {
    /// An error of this kind, with what happened and what to do about it. No keys, payloads or secrets.
    #[must_use]
    pub fn new(kind: SourceErrorKind, context: impl Into<Box<str>>) -> Self {
        Self { kind, context: context.into(), cause: None }
    }

    /// Adds the error underneath.
    #[must_use]
    pub fn with_cause(mut self, cause: impl Into<Cause>) -> Self {
        self.cause = Some(cause.into());
        self
    }

    /// What to decide on.
    #[must_use]
    pub fn kind(&self) -> SourceErrorKind {
        self.kind
    }
}

impl fmt::Display for SourceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            SourceErrorKind::Transient => "the broker failed for now",
            SourceErrorKind::Gone => "the delivery is not ours any more",
            SourceErrorKind::Fatal => "the broker refuses",
        };
        write!(f, "{kind}: {}", self.context)
    }
}

impl StdError for SourceError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.cause.as_deref().map(|cause| cause as _)
    }
}

/// Why a consumer was not built.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SetupError {
    /// The policy makes no sense, or does not fit how the broker redelivers.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// The group is empty.
    #[error(transparent)]
    Group(#[from] KeyError),
    /// Two settings do not fit, or one does not fit the source.
    #[error("consumer: {0}")]
    Setting(Box<str>),
}

/// A body that is not what the handler takes: put aside at once, with its bytes as they came.
///
/// The text goes into logs and onto the dead letter: it says what is wrong, and nothing of what is in the body.
#[derive(Clone, Debug, thiserror::Error)]
#[error("the body cannot be read: {0}")]
pub struct Undecodable(pub String);
