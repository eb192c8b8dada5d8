//! Protocol, executor and in-memory store of [`idempotent`](https://docs.rs/idempotent-rs).
//!
//! A delivery passes through these types in order:
//!
//! 1. The attribute or the caller names an [`Identity`], which becomes a [`Key`], and optionally a [`Fingerprint`].
//! 2. The [`Executor`] sends a [`ClaimRequest`] to a [`Store`] and receives a [`Claim`].
//! 3. The handler runs under a [`Lease`], which the executor renews.
//! 4. [`ReplyStrategy`] classifies the handler's return value, and a [`Codec`] encodes the result for the record.
//! 5. An [`Outcome`] reports the [`Disposition`] to the code that settles the delivery.
//!
//! [`protocol`] contains the same decisions as pure functions of (record, request, now).
#![cfg_attr(docsrs, feature(doc_cfg))]
mod alert;
mod backoff;
mod canonical;
mod claim;
mod clock;
mod codec;
mod context;
mod duplicate_messages;
mod engine;
mod entropy;
mod error;
mod executor;
mod fingerprint;
mod key;
mod key_strategy;
mod lease;
mod observe;
mod ordering;
mod outcome;
mod panic_guard;
mod policy;
pub mod protocol;
#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)]
mod protocol_tests;
mod record;
mod rejection;
mod reply;
mod run;
mod steps;
pub mod store;
mod sync;
mod token;
mod transaction;
mod units;
mod url;
mod waiters;

pub use alert::{
    Alert, AlertCounts, AlertError, AlertKind, AlertLog, AlertObserver, AlertSender, AlertSetupError, Alerts,
    AlertsBuilder, GivenUp,
};
pub use claim::{
    Claim, ClaimHandle, ClaimRequest, Completion, Consumed, Dead, FencingToken, Grant, GrantTerms, InFlight, OnExpiry,
    OwnerToken, Release, ReleaseKind, Settled,
};
pub use clock::{Clock, SystemClock, Timer};
pub use codec::{Codec, Discard, Json};
pub use duplicate_messages::{DuplicateMessages, LocalizedText, PreferredLanguages};
pub use entropy::{Entropy, EntropyError, OsEntropy};
pub use error::{CodecError, KeyError, StoreError, StoreErrorKind};
pub use executor::{
    AlreadyInstalled, BatchItem, Call, DeliveryContext, Drained, Executor, ExecutorBuilder, Handler, Served, Stopped,
};
pub use fingerprint::{Fingerprint, Fingerprinted, Fingerprinter};
pub use key::{DisplayKey, Identity, Key, KeyExtractor, KeyPart, Parts, Scene, key_hash};
pub use key_strategy::{DerivedKey, KeyStrategy};
pub use lease::Lease;
pub use observe::{Event, ExecutorCounts, HandlerEnd, Observer, RunInfo, Tracing};
pub use ordering::{
    AdmittedNumber, BrokenOrder, MAX_WAITING_RANGES, OnBrokenOrder, OnLate, Predecessor, Registered, Stream,
    StreamBlocker, StreamView, WaitingNumbers,
};
pub use outcome::{Disposition, Outcome, RunSummary};
pub use policy::{OnConsumed, OnInFlight, OnLeaseLost, OnStoreError, Policy, PolicyError, Redelivery};
pub use record::{Record, State, StateKind, Timestamp};
pub use rejection::Rejection;
pub use reply::{DefaultReply, HandlerOutcome, RejectStrategy, ReplyStrategy, ResponseShape};
pub use run::BatchOutput;
pub use steps::{
    InTransaction, MAX_STEP_BYTES, MAX_STEP_NAME, MAX_STEPS, MAX_STEPS_BYTES, OutsideTransaction, Step, StepError,
    StepRecord, StepState, StoredSteps, step, step_in, step_key,
};
pub use store::{
    Admin, Batch, BrowseOrder, CacheTier, CachedOutcome, Cas, CasBackend, ClaimMode, Inspect, InspectedRecord,
    KeyFilter, MemoryStore, MemoryStoreBuilder, MemoryTier, NamePattern, OrderStore, OrderTablePage, PageLimits,
    PatternError, Purge, RecordEntry, RecordPage, Renewal, Search, StepStore, Store, StoreCapabilities, StoreNode,
    StoreNodes, StoredOrderTable, TierCounts, TieredStore, TieredStoreBuilder, Transactional, UnreadableRecord,
    Version, VersionedRecord, Watch, Watching, orphans,
};
pub use token::{Token, Tokens};
pub use transaction::{
    BorrowedTransaction, StepTransactionSource, TransactionHandle, TransactionSource, TransactionalRun,
};

/// Functions that the attribute's generated code calls, and functions that this workspace's crates share. Internal: anything
/// here may change in a patch release.
#[doc(hidden)]
pub mod __private {
    pub use std::boxed::Box;
    pub use std::time::Duration;
    pub use std::vec::Vec;

    pub use crate::units::{HumaneSize, HumaneTime, start_of};

    pub use crate::alert::send_guarded;
    pub use crate::context::capture_delivery;
    #[cfg(feature = "test-hooks")]
    pub use crate::executor::renew_until_dropped;
    pub use crate::executor::{Begun, Site, executor, returns, within};
    pub use crate::fingerprint::{argument, arguments, fingerprint, said};
    pub use crate::key::{CallerName, scope_of};
    pub use crate::key_strategy::derive;
    pub use crate::observe::{trace, warn_without_subscriber};
    pub use crate::outcome::{Summary, SummarySlot};
    pub use crate::panic_guard::{HookGuard, catch_panic};
    pub use crate::run::{run, run_batch, run_delivery};
    pub use crate::*;

    /// Backoff delays.
    pub mod backoff {
        pub use crate::backoff::delay;
    }

    /// Admission of the claims of a consumer's deliveries.
    pub mod admission {
        pub use crate::executor::{AdmittedClaim, ClaimAdmission, Withdrawal};
    }

    /// URL parsing of the stores.
    pub mod url {
        pub use crate::url::{Authority, authority, decoded, is_scheme, masked, unreached};
    }

    /// Waiter lists of the stores.
    pub mod waiters {
        pub use crate::waiters::Waiters;
    }
}
