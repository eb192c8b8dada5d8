//! What can go wrong, seen from a store, a codec, a key and a handler.
use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::{BrokenOrder, EntropyError, Fencing, JournalError, PolicyError};

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

/// Why the handler's own answer cannot be given. A handler's error type takes it by `From`.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Rejection {
    /// Somebody is running it: come back later.
    #[error("{}", message.as_deref().map_or_else(|| format!("the same call is in flight; come back in {retry_after:?}"), str::to_owned))]
    InFlight {
        /// When to come back.
        retry_after: Duration,
        /// The attribute's `message`, if it has one.
        message: Option<Arc<str>>,
    },
    /// It failed a moment ago and is not due yet.
    #[error("failed before; not due for {retry_after:?}")]
    Delayed {
        /// When to come back.
        retry_after: Duration,
    },
    /// It comes after a call that is not consumed yet: come back later.
    #[error("it is not its turn; come back in {retry_after:?}")]
    Waiting {
        /// When to come back.
        retry_after: Duration,
    },
    /// It comes after a call that will not be consumed by itself, and is held until somebody has looked.
    #[error("held back: {why}; put that one right, or say `on_broken_order = skip(…)`; comes back in {retry_after:?}")]
    Held {
        /// When to come back.
        retry_after: Duration,
        /// What is wrong.
        why: BrokenOrder,
    },
    /// This process is shutting down and starts nothing new.
    #[error("this executor is draining; another worker may take it in {retry_after:?}")]
    Draining {
        /// When to come back.
        retry_after: Duration,
    },
    /// Done before; its result was not kept or cannot be read. Not a failure: acknowledge it.
    #[error("done before, but its result is not to be had{}", cause.as_ref().map_or_else(String::new, |e| format!(": {e}")))]
    ConsumedWithoutResult {
        /// Why it cannot be read, if one was kept.
        cause: Option<CodecError>,
    },
    /// Done before, and its result is not given twice: a token that was used, or an equal call within the window.
    #[error("{}", message.as_deref().unwrap_or("done before: this is a duplicate"))]
    Duplicate {
        /// When an equal call counts as another one, where that is soon: within a [`window`](crate::Policy::window).
        retry_after: Option<Duration>,
        /// The attribute's `message`, if it has one.
        message: Option<Arc<str>>,
    },
    /// The token is not one of those that were issued to this caller, or its time is over.
    #[error("no such token for this caller: ask for a new one")]
    UnknownToken,
    /// Failed for good in an earlier delivery.
    #[error("failed for good before: {error}")]
    Failed {
        /// The error recorded then.
        error: Arc<str>,
    },
    /// Out of attempts, or parked; or buried without a run, since its turn would not have come.
    #[error("{}", crate::order::given_up(*attempts, error))]
    Dead {
        /// Claims granted in all: its runs, and the one that buried it where that was no run.
        attempts: u32,
        /// Names the dead letter together with the key.
        fencing: Fencing,
        /// Why the last run did not succeed, or why there was none.
        error: Arc<str>,
    },
    /// The key was used with another payload.
    #[error("the key was used with another payload: a new request needs a new key")]
    Mismatch,
    /// The key or the fingerprint cannot be used.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The lease was lost while the handler ran: another worker may be running. Do nothing more for it.
    #[error("the lease was lost while the handler ran; another worker may have taken over")]
    LeaseLost,
    /// The handler ran, but the store did not record the result in time: before the lease ended, or within
    /// [`settle_timeout`](crate::Policy::settle_timeout). In the second case the step goes on in the background.
    #[error("the handler ran, but the store did not record its result in time")]
    Unrecorded {
        /// The store's last word, if it had one.
        cause: Option<StoreError>,
    },
    /// The handler ran in a transaction that could not be committed: nothing of it is there.
    #[error("the handler ran, but its transaction was rolled back{}; try again", cause.as_ref().map_or_else(String::new, |e| format!(": {e}")))]
    RolledBack {
        /// When to come back.
        retry_after: Duration,
        /// Why.
        cause: Option<StoreError>,
    },
    /// The handler is to run in a transaction that the executor's store does not have.
    #[error(
        "the handler wants a `{wanted}`, and this executor's store is {store}: run it by an executor whose store lies in \
         the database of the effects"
    )]
    NoTransaction {
        /// The type of transaction.
        wanted: &'static str,
        /// The store, and what it has.
        store: Arc<str>,
    },
    /// A run of this key inside a run of this key.
    #[error("`{scope}` is running for this very key further up; a run cannot wait for itself")]
    Nested {
        /// The scope of the outer run.
        scope: Arc<str>,
    },
    /// Nothing to run with.
    #[error(
        "no executor for `{scope}`: pass `with = …`, wrap the call in `executor.scope(…)`, or call \
         `executor.install()` once in `main`"
    )]
    NoExecutor {
        /// The scope of the call.
        scope: Arc<str>,
    },
    /// The call is polled outside a tokio runtime, or in one without timers, which leases need.
    #[error(
        "no tokio runtime with timers polls this call: call it from a task of tokio, and call `enable_time` (or \
         `enable_all`) on the builder of the runtime"
    )]
    NoRuntime,
    /// The store failed at the claim; the handler did not run.
    #[error("the handler did not run: {0}")]
    Store(#[from] StoreError),
    /// The policy in force makes no sense.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// No randomness for an owner token.
    #[error(transparent)]
    Entropy(#[from] EntropyError),
    /// A step of the handler cannot be run, or was not noted.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// A batch handler answered for fewer or more items than it was given; none of them counts as done.
    #[error("the batch handler was given {given} items and answered {answered}: one answer for each, in order")]
    BatchAnswers {
        /// Items handed to it.
        given: usize,
        /// Answers it gave.
        answered: usize,
    },
}
