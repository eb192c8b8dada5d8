//! Errors of stores, codecs and keys.
use std::error::Error as StdError;
use std::fmt;

type Source = Box<dyn StdError + Send + Sync>;

/// An error of a store: a [`kind`](Self::kind) to decide on, a context and a source to read.
#[derive(Debug)]
pub struct StoreError {
    kind: StoreErrorKind,
    context: Option<Box<str>>,
    source: Option<Source>,
}

/// What a caller may conclude from a [`StoreError`].
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum StoreErrorKind {
    /// Surely not done; worth another try.
    NotApplied,
    /// Done or not: only what is idempotent by its owner token may be tried again.
    Ambiguous,
    /// Refused by the server's access rules; nothing was done.
    Denied,
    /// The schema or the settings of the store do not fit this version; nothing was done.
    Schema,
    /// The record cannot be read; it is left as it is.
    Corrupt,
    /// The record was written by a newer version; it is left as it is.
    UnknownVersion,
    /// The key holds something that is not ours; it is left as it is.
    Foreign,
    /// The transaction it was a part of is rolled back, or has to be: nothing of that transaction is there. Not to be sent
    /// again alone; the whole of the transaction may be run again.
    RolledBack,
}

impl StoreError {
    /// An error of this kind.
    #[must_use]
    pub fn new(kind: StoreErrorKind) -> Self {
        Self { kind, context: None, source: None }
    }

    /// Adds what happened and what to do about it. No keys, payloads or secrets.
    #[must_use]
    pub fn because(mut self, context: impl Into<String>) -> Self {
        self.context = Some(context.into().into_boxed_str());
        self
    }

    /// Adds the error underneath.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<Source>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// What to decide on.
    #[must_use]
    pub fn kind(&self) -> StoreErrorKind {
        self.kind
    }

    /// Whether the same request, by the same owner token, may be sent again.
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

/// A result could not be encoded, or what was kept could not be decoded.
#[derive(Debug, thiserror::Error)]
#[error("the result of type `{type_name}` cannot be {verb} for replay: {source}")]
pub struct CodecError {
    type_name: &'static str,
    verb: &'static str,
    source: Source,
}

impl CodecError {
    /// A `T` that could not be encoded.
    pub fn encode<T: ?Sized>(source: impl Into<Source>) -> Self {
        Self { type_name: std::any::type_name::<T>(), verb: "kept", source: source.into() }
    }

    /// Bytes that are not a `T`, such as those of an older version of the type.
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

/// The key or fingerprint of a call cannot be used. The message is at fault, not the moment: another
/// delivery of it would fail the same way.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// The key, or a part of it, is missing or empty.
    #[error("{}", empty(scene, what))]
    Empty {
        /// The scene of the call.
        scene: Box<str>,
        /// The key's expression, or what stands for it; names the empty part of several.
        what: Box<str>,
        /// Whether there is none, not an empty one: a `None`, or nothing at all.
        missing: bool,
    },
    /// The key has more bytes than are taken.
    #[error(
        "the idempotency key has {bytes} bytes, limit {limit} (scene \"{scene}\", key `{what}`): hash it with `key_hash`"
    )]
    TooLong {
        /// The scene of the call.
        scene: Box<str>,
        /// The key's expression, or what stands for it.
        what: Box<str>,
        /// Bytes over all parts.
        bytes: usize,
        /// Bytes taken at most.
        limit: usize,
    },
    /// The scope, scene or namespace is empty: keys of different handlers would fall together.
    #[error("the {part} of the idempotency key is empty: name one, so that handlers do not share keys")]
    NoName {
        /// Which.
        part: &'static str,
    },
    /// The call is named as the one it comes after.
    #[error(
        "the call comes after itself: `after` names its own key, so it would wait for ever; name the call before it"
    )]
    AfterItself,
    /// The payload has no fingerprint.
    #[error("the payload has no fingerprint: {error}; give `Fingerprint::of_bytes` of its bytes")]
    Fingerprint {
        /// Why.
        error: String,
    },
}
