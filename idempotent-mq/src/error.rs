//! Errors of consumers, sources, and message bodies.
use idempotent_core::{KeyError, PolicyError};

/// Defines an error type with a kind, a context and a cause.
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
            /// Creates an error of this kind. The context states what happened and the remedy, without ids, keys, payloads and
            /// secrets.
            #[must_use]
            pub fn new(kind: $kind, context: impl Into<Box<str>>) -> Self {
                Self { kind, context: context.into(), cause: None }
            }

            /// Sets the cause.
            #[must_use]
            pub fn with_cause(mut self, cause: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
                self.cause = Some(cause.into());
                self
            }

            /// Returns the kind, which determines the reaction.
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
    /// An error of a source, with a [`kind`](Self::kind), a context and a cause.
    SourceError of SourceErrorKind
}

/// The kind of a [`SourceError`].
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum SourceErrorKind {
    /// A retry may succeed, perhaps on another connection.
    Transient,
    /// The delivery no longer belongs to this consumer: its channel was closed, its visibility timeout is over, or its partition
    /// was revoked. The broker delivers the message again.
    Gone,
    /// This one message is refused for good, and other messages are not affected: its copy is too large, its queue is unknown, or
    /// the broker cannot represent it.
    Refused,
    /// A retry would fail in the same way: no access, no such queue, or an operation that the broker lacks.
    Fatal,
}

impl SourceErrorKind {
    fn words(self) -> &'static str {
        match self {
            Self::Transient => "the broker failed for now",
            Self::Gone => "the delivery no longer belongs to this consumer",
            Self::Refused => "this message is refused",
            Self::Fatal => "the broker refuses",
        }
    }
}

/// An error of the setup of a consumer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SetupError {
    /// The policy is invalid, or does not fit the redelivery of the broker.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// The group is empty.
    #[error(transparent)]
    Group(#[from] KeyError),
    /// Two settings contradict each other, or a setting does not fit the source.
    #[error("consumer: {0}")]
    Setting(Box<str>),
}

/// An error of a body that cannot be decoded. The consumer dead-letters the message at once, with its original bytes.
///
/// The text appears in logs and in the dead letter. It states what is wrong, without the content of the body.
#[derive(Clone, Debug, thiserror::Error)]
#[error("the body cannot be read: {0}")]
pub struct Undecodable(pub String);
