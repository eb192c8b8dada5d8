//! Inspection and repair of the records of [`idempotent-rs`](https://docs.rs/idempotent-rs), over any store.
//!
//! An operator's tool takes these steps:
//!
//! 1. [`KeyAddress`] names a key by its text or by its parts, or [`list`] finds keys by a [`KeyFilter`].
//! 2. [`RecordSummary`] describes a record by the store's clock, without its result.
//! 3. [`Repairer`] forgets or releases keys. Each change names the fencing number that the operator saw, and an
//!    [`AuditSink`] records it.
//!
//! [`LetterFilter`] selects dead letters of a queue, [`LetterSummary`] describes one without its body, and [`Redriver`]
//! puts them back into their queue or removes them. [`AuditTrail`] records any other change.
//!
//! [`plan`] calculates memory, processors and servers for a load.
//!
//! `OutboxAccess` and [`DelayAccess`] show an outbox, a delay queue and a delay table of any database. The features `outbox`,
//! `delay` and `delay-queue` switch them on.
//!
//! Texts from a store are untrusted: print them by [`escaped`].
#![cfg_attr(docsrs, feature(doc_cfg))]
mod address;
mod audit;
mod audit_reader;
mod delay;
mod delivery_limit;
mod error;
mod letter;
mod listing;
#[cfg(all(feature = "outbox", any(feature = "mysql", feature = "postgres", feature = "sqlite")))]
mod outbox;
pub mod plan;
mod redrive;
mod repair;
mod stream;
mod summary;
mod text;

pub use idempotent_core::{KeyFilter, NamePattern, PageLimits, PatternError};

pub use self::address::{KeyAddress, KeyTenant};
pub use self::audit::{AuditEntry, AuditFile, AuditIntent, AuditPhase, AuditSink, AuditTrail, TracingAudit};
pub use self::audit_reader::{AuditFilter, AuditReader, NewestEntries};
pub use self::delay::{BoundedCount, DelayAccess, DelayDepth};
pub use self::delivery_limit::{DeliveryLimitError, DeliveryLimited};
pub use self::error::OperateError;
pub use self::letter::{LetterFilter, LetterSummary};
pub use self::listing::{KeyPage, inspect, list, list_paced, store_time};
#[cfg(all(feature = "outbox", any(feature = "mysql", feature = "postgres", feature = "sqlite")))]
pub use self::outbox::{OutboxAccess, OutboxChange, PooledOutbox};
pub use self::redrive::{RedriveOutcome, Redriver};
pub use self::repair::{Repair, RepairResult, Repairer};
pub use self::stream::{StreamNumbers, StreamSummary};
pub use self::summary::{RecordSummary, StateName, UnreadableName, UnreadableSummary, date};
pub use self::text::{escaped, escaped_bytes, lease_time, short_time};
