//! Protocol, executor and memory store of [`idempotent`](https://docs.rs/idempotent-rs): claim a key, run the
//! handler under a lease, remember how it ended.
//!
//! Read in the order the data flows: an attribute or a caller names an [`Identity`] ([`key`](Key)) and perhaps a
//! [`Fingerprint`]; the [`Executor`] asks a [`Store`] for a [`Claim`] by a [`ClaimRequest`]; the handler runs under
//! a [`Lease`] that the executor keeps alive; [`Replies`] says what its answer means, a [`Codec`] keeps it, and an
//! [`Outcome`] tells whoever settles the delivery how. [`protocol`] is the same story as pure functions of
//! (record, request, now).
mod alert;
mod backoff;
mod canonical;
mod claim;
mod clock;
mod codec;
mod context;
mod entropy;
mod error;
mod executor;
mod fingerprint;
mod journal;
mod key;
mod lease;
mod observe;
mod order;
mod outcome;
mod policy;
pub mod protocol;
mod record;
mod reply;
pub mod store;
mod sync;
mod token;
mod transaction;
mod url;
mod waiters;

pub use alert::{
    Alert, AlertCounts, AlertError, AlertKind, AlertLog, AlertObserver, AlertSender, AlertSetupError, Alerts,
    AlertsBuilder, GivenUp,
};
pub use claim::{
    Claim, ClaimRequest, Completion, Consumed, Dead, Fencing, Grant, Held, InFlight, OnExpiry, OwnerToken, Release,
    Settled, Verdict,
};
pub use clock::{Clock, SystemClock, Timer};
pub use codec::{Codec, Discard, Json};
pub use context::AlreadyInstalled;
pub use entropy::{Entropy, EntropyError, OsEntropy};
pub use error::{CodecError, KeyError, Rejection, StoreError, StoreErrorKind};
pub use executor::{Answer, BatchItem, Call, Drained, Executor, ExecutorBuilder, Handler, Served, Stopped};
pub use fingerprint::{Fingerprint, Fingerprinted, Fingerprinter};
pub use journal::{
    Beside, JournalError, Journaled, MAX_JOURNAL_BYTES, MAX_STEP_BYTES, MAX_STEP_NAME, MAX_STEPS, Step, StepRecord,
    StepState, Within, step, step_in, step_key,
};
pub use key::{DisplayKey, Identity, Key, KeyExtractor, KeyPart, Parts, Scene, key_hash};
pub use lease::Lease;
pub use observe::{Counts, Event, Observer, Run, Tracing};
pub use order::{BrokenOrder, MAX_LINE, OnBrokenOrder, OnLate, Predecessor, Registered, Stream};
pub use outcome::{Captured, Disposition, Outcome};
pub use policy::{OnConsumed, OnInFlight, OnLeaseLost, OnStoreError, Policy, PolicyError, Redelivery};
pub use record::{Micros, Record, State, StateKind};
pub use reply::{Auto, Rejects, Replies, Reshapes, Split};
pub use store::{
    Abilities, Admin, Batch, Browse, Cas, CasBackend, Entry, Fact, FastTier, Inspect, Inspected, Journal, Lined,
    MemoryStore, MemoryStoreBuilder, MemoryTier, Order, Page, Purge, Renewal, Seen, Store, TierCounts, TieredStore,
    TieredStoreBuilder, Version, Watch, Watching, orphans,
};
pub use token::{Token, Tokens};
pub use transaction::{ClaimMode, Lender, Lends, Lent, OneRun, StepsWithin, Transact};

/// What URLs of stores have in common. Not for people: anything here may change in a patch release.
#[doc(hidden)]
pub mod __url {
    pub use crate::url::{Authority, authority, decoded, is_scheme, masked};
}

/// How delays grow, for the crates of this workspace. Not for people: anything here may change in a patch release.
#[doc(hidden)]
pub mod __backoff {
    pub use crate::backoff::delay;
}

/// Tasks that wait for a key, for the stores of this workspace. Not for people: anything here may change in a patch release.
#[doc(hidden)]
pub mod __waiters {
    pub use crate::waiters::Waiters;
}

/// What the attribute's code calls. Not for people: anything here may change in a patch release.
#[doc(hidden)]
pub mod __private {
    pub use std::boxed::Box;
    pub use std::time::Duration;

    pub use crate::context::executor;
    pub use crate::executor::{Begun, Site, register, run};
    pub use crate::fingerprint::{argument, arguments, fingerprint, said};
    pub use crate::key::scope_of;
    pub use crate::observe::trace;
    pub use crate::transaction::within;
    pub use crate::*;
}
