//! Errors of stores, codecs and keys.
use std::error::Error as StdError;
use std::fmt;

type Source = Box<dyn StdError + Send + Sync>;

/// The error of a store: a [`kind`](Self::kind) for decisions, and a context and a source for people.
#[derive(Debug)]
pub struct StoreError {
    kind: StoreErrorKind,
    context: Option<Box<str>>,
    source: Option<Source>,
}

/// The conclusion that a caller may draw from a [`StoreError`].
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum StoreErrorKind {
    /// The operation was certainly not applied. Retrying may succeed.
    NotApplied,
    /// The operation may or may not be applied. Retry only operations that are idempotent by their owner token.
    Ambiguous,
    /// The server's access rules refused the operation. It was not applied.
    Denied,
    /// The store's schema or settings do not fit this version. The operation was not applied.
    Schema,
    /// The record cannot be read. It is left unchanged.
    Corrupt,
    /// The record was written by a newer version. It is left unchanged.
    UnknownVersion,
    /// The key holds a value that was not written by this library. It is left unchanged.
    Foreign,
    /// The transaction of the operation is rolled back, or has to be, so nothing of it is applied. Do not retry the
    /// operation alone. The whole transaction may run again.
    RolledBack,
}

impl StoreError {
    /// Creates an error of this kind.
    #[must_use]
    pub fn new(kind: StoreErrorKind) -> Self {
        Self { kind, context: None, source: None }
    }

    /// Adds the cause and the remedy. The text must not contain keys, payloads or secrets.
    #[must_use]
    pub fn because(mut self, context: impl Into<String>) -> Self {
        self.context = Some(context.into().into_boxed_str());
        self
    }

    /// Adds the underlying error.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<Source>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// Returns the kind, on which callers base their decisions.
    #[must_use]
    pub fn kind(&self) -> StoreErrorKind {
        self.kind
    }

    /// Returns whether the same request, with the same owner token, may be sent again.
    #[must_use]
    pub fn is_worth_a_retry(&self) -> bool {
        matches!(self.kind, StoreErrorKind::NotApplied | StoreErrorKind::Ambiguous)
    }
}

impl fmt::Display for StoreErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotApplied => "the store refused for now, nothing was done",
            Self::Ambiguous => "the store did not answer, it may have been done",
            Self::Denied => "the store denies access",
            Self::Schema => "the store is not set up for this version",
            Self::Corrupt => "the record cannot be read and is left as it is",
            Self::UnknownVersion => "the record is of a newer version and is left as it is",
            Self::RolledBack => "its transaction is rolled back, or has to be: run the whole of it again",
            Self::Foreign => "what is there is not ours and is left as it is",
        })
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.kind.fmt(f)?;
        if let Some(context) = &self.context {
            write!(f, ": {context}")?;
        }
        Ok(())
    }
}

impl StdError for StoreError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}

/// The error of a result that could not be encoded, or of a recorded result that could not be decoded.
#[derive(Debug, thiserror::Error)]
#[error("the result of type `{type_name}` cannot be {verb} for replay: {source}")]
pub struct CodecError {
    type_name: &'static str,
    verb: &'static str,
    source: Source,
}

impl CodecError {
    /// Creates the error of a `T` that could not be encoded.
    pub fn encode<T: ?Sized>(source: impl Into<Source>) -> Self {
        Self { type_name: std::any::type_name::<T>(), verb: "kept", source: source.into() }
    }

    /// Creates the error of bytes that are not a `T`, such as those of an older version of the type.
    pub fn decode<T: ?Sized>(source: impl Into<Source>) -> Self {
        Self { type_name: std::any::type_name::<T>(), verb: "restored", source: source.into() }
    }
}

fn empty(scene: &str, what: &str) -> String {
    match what.split(',').next() {
        Some("after") => format!(
            "part of `after` is missing or empty (scene \"{scene}\", `{what}`): the first of a chain comes after nothing, \
             `None` as a whole; here a number got lost on its way"
        ),
        _ => format!(
            "the idempotency key is empty (scene \"{scene}\", key `{what}`): every message or request needs a key of its own"
        ),
    }
}

/// The error of a call whose key or fingerprint cannot be used.
///
/// The cause is the message, so that another delivery of the message would fail in the same way.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// The key, or a part of it, is missing or empty.
    #[error("{}", empty(scene, what))]
    Empty {
        /// The scene of the call.
        scene: Box<str>,
        /// The key's expression or a substitute for it. Names the empty part of a key with several parts.
        what: Box<str>,
        /// True if the part is missing (`None`, or no part at all) instead of empty.
        missing: bool,
    },
    /// The key is longer than the limit.
    #[error(
        "the idempotency key has {bytes} bytes, limit {limit} (scene \"{scene}\", key `{what}`): hash it with `key_hash`"
    )]
    TooLong {
        /// The scene of the call.
        scene: Box<str>,
        /// The key's expression or a substitute for it.
        what: Box<str>,
        /// The length of all parts in bytes.
        bytes: usize,
        /// The maximum length in bytes.
        limit: usize,
    },
    /// The scope, scene or namespace is empty, so keys of different handlers would collide.
    #[error("the {part} of the idempotency key is empty: name one, so that handlers do not share keys")]
    NoName {
        /// The name of the empty field.
        part: &'static str,
    },
    /// The call names itself as its predecessor.
    #[error(
        "the call comes after itself: `after` names its own key, so it would wait for ever; name the call before it"
    )]
    AfterItself,
    /// The payload has no fingerprint.
    #[error("the payload has no fingerprint: {error}; give `Fingerprint::of_bytes` of its bytes")]
    Fingerprint {
        /// The error that prevented the fingerprint.
        error: String,
    },
}
