//! Errors of stores, codecs and keys.
use std::error::Error as StdError;
use std::fmt;

use crate::StoreNode;

type Source = Box<dyn StdError + Send + Sync>;

/// The error of a store: a [`kind`](Self::kind) and a [`node`](Self::node) for decisions, and a context and a source for people.
#[derive(Debug)]
pub struct StoreError {
    kind: StoreErrorKind,
    node: Option<StoreNode>,
    context: Option<Box<str>>,
    source: Option<Source>,
}

/// The conclusion that a caller may draw from a [`StoreError`].
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum StoreErrorKind {
    /// The operation was certainly not applied. Retrying may succeed.
    NotApplied,
    /// Too many calls wait already, or the node of the key does not answer. The operation was not sent. Retry it later.
    Busy,
    /// The operation may or may not be applied. Retry only operations that are idempotent by their owner token.
    Ambiguous,
    /// The server's access rules, or the setting `read_only` of the store, refused the operation. It was not applied.
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
    /// The handler ended the transaction of the operation by a statement of its own, such as `COMMIT` or, on MariaDB and MySQL, a
    /// change of the schema. What it wrote before may be committed without the record. The key is free for another run.
    TransactionEnded,
}

impl StoreErrorKind {
    /// Returns the name of the kind in metrics.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::NotApplied => "not_applied",
            Self::Busy => "busy",
            Self::Ambiguous => "ambiguous",
            Self::Denied => "denied",
            Self::Schema => "schema",
            Self::Corrupt => "corrupt",
            Self::UnknownVersion => "unknown_version",
            Self::Foreign => "foreign",
            Self::RolledBack => "rolled_back",
            Self::TransactionEnded => "transaction_ended",
        }
    }
}

impl StoreError {
    /// Creates an error of this kind.
    #[must_use]
    pub fn new(kind: StoreErrorKind) -> Self {
        Self { kind, node: None, context: None, source: None }
    }

    /// Adds the node that failed, for a store with several nodes.
    #[must_use]
    pub fn with_node(mut self, node: StoreNode) -> Self {
        self.node = Some(node);
        self
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

    /// Returns the node that failed, or `None` if the store has one node or does not know which one failed.
    #[must_use]
    pub fn node(&self) -> Option<&StoreNode> {
        self.node.as_ref()
    }

    /// Returns whether the same request, with the same owner token, may be sent again.
    #[must_use]
    pub fn is_worth_a_retry(&self) -> bool {
        matches!(self.kind, StoreErrorKind::NotApplied | StoreErrorKind::Busy | StoreErrorKind::Ambiguous)
    }
}

impl fmt::Display for StoreErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotApplied => "the store did not apply the operation",
            Self::Busy => "the store accepts no more operations at the moment; the operation was not sent",
            Self::Ambiguous => "the store did not answer; the operation may have been applied",
            Self::Denied => "the store denied access",
            Self::Schema => "the store's schema or settings do not match this version",
            Self::Corrupt => "the record is corrupt and was left unchanged",
            Self::UnknownVersion => "a newer version wrote the record; it was left unchanged",
            Self::RolledBack => "the transaction was rolled back or must be; run the whole transaction again",
            Self::TransactionEnded => {
                "a statement of the handler ended its transaction; the key stays free for another run"
            }
            Self::Foreign => "the key holds a value that this library did not write; it was left unchanged",
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
#[error("cannot {verb} the result of type `{type_name}` for replay: {source}")]
pub struct CodecError {
    type_name: &'static str,
    verb: &'static str,
    source: Source,
}

impl CodecError {
    /// Creates the error of a `T` that could not be encoded.
    pub fn encode<T: ?Sized>(source: impl Into<Source>) -> Self {
        Self { type_name: std::any::type_name::<T>(), verb: "encode", source: source.into() }
    }

    /// Creates the error of bytes that are not a `T`, such as those of an older version of the type.
    pub fn decode<T: ?Sized>(source: impl Into<Source>) -> Self {
        Self { type_name: std::any::type_name::<T>(), verb: "decode", source: source.into() }
    }
}

fn empty(scene: &str, what: &str) -> String {
    match what.split(',').next() {
        Some("after") => format!(
            "part of `after` is missing or empty (scene \"{scene}\", `{what}`): pass `None` as a whole for the first call of \
             a chain; here a part of the key was lost"
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
        "`after` names the key of the call itself, so the call would wait forever; name the key of the preceding call"
    )]
    AfterItself,
    /// The payload has no fingerprint.
    #[error("the payload has no fingerprint: {error}; use `Fingerprint::of_bytes` on its bytes")]
    Fingerprint {
        /// The error that prevented the fingerprint.
        error: String,
    },
}
