//! What can go wrong between a consumer and its broker.
use idempotent_core::{KeyError, PolicyError};

/// An error that is a kind to decide on, a context and a cause to read.
macro_rules! failure {
    ($(#[$doc:meta])* $name:ident of $kind:ident) => {
        $(#[$doc])*
        #[derive(Debug)]
        pub struct $name {
            kind: $kind,
            context: Box<str>,
            cause: Option<Box<dyn std::error::Error + Send + Sync>>,
        }

        impl $name {
            /// An error of this kind, with what happened and what to do about it. No ids, keys, payloads or secrets.
            #[must_use]
            pub fn new(kind: $kind, context: impl Into<Box<str>>) -> Self {
                Self { kind, context: context.into(), cause: None }
            }

            /// Adds the error underneath.
            #[must_use]
            pub fn with_cause(mut self, cause: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
                self.cause = Some(cause.into());
                self
            }

            /// What to decide on.
            #[must_use]
            pub fn kind(&self) -> $kind {
                self.kind
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, "{}: {}", self.kind.words(), self.context)
            }
        }

        impl std::error::Error for $name {
            fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
                self.cause.as_deref().map(|cause| cause as _)
            }
        }
    };
}
pub(crate) use failure;

failure! {
    /// An error of a source: a [`kind`](Self::kind) to decide on, a context and a cause to read.
    SourceError of SourceErrorKind
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

impl SourceErrorKind {
    fn words(self) -> &'static str {
        match self {
            Self::Transient => "the broker failed for now",
            Self::Gone => "the delivery is not ours any more",
            Self::Fatal => "the broker refuses",
        }
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
