//! Consumer-side idempotency: one attribute makes a message or REST handler safe against duplicates.
//!
//! ```
//! use idempotent::{Executor, MemoryStore, Outcome, Rejection, idempotent};
//!
//! #[idempotent(key = order, scope = "charge")]
//! async fn charge(order: u32, cents: u64) -> Result<u64, Rejection> {
//!     Ok(cents)
//! }
//!
//! #[tokio::main]
//! async fn main() {
//!     let executor = Executor::new(MemoryStore::new());
//!     executor
//!         .scope(async {
//!             assert_eq!(charge(17, 500).await.unwrap(), 500);
//!             // A duplicate gets the recorded result: the handler does not run.
//!             let (answer, outcome) = Outcome::capture(charge(17, 900)).await;
//!             assert_eq!((answer.unwrap(), outcome), (500, Some(Outcome::Replayed)));
//!         })
//!         .await;
//!     // Without an executor it does not run either.
//!     assert!(matches!(charge(17, 500).await, Err(Rejection::NoExecutor { .. })));
//! }
//! ```
//!
//! Within its retention a duplicate of a consumed key does not run: that is level L1. What a crash between the effect and its record does,
//! and how levels L2 and L4 deal with it, is in [`docs::guarantees`].
//!
//! | I want to … | look at |
//! |---|---|
//! | begin | [`docs::getting_started`] |
//! | know what "once" means here | [`docs::guarantees`] |
//! | make a handler idempotent | [`macro@idempotent`], every argument with its default |
//! | choose a key | [`docs::keys`] |
//! | protect REST handlers | [`docs::http`]: [`IdempotencyLayer`], [`Http`] for annotated ones |
//! | refuse a form that is sent twice | [`Tokens`], and `by = token` |
//! | refuse two equal calls in a row | `by = param`, [`Policy::window`] |
//! | keep records in a file, without a server | [`SqliteStore`] |
//! | keep them on Redis or Valkey, for a fleet | [`RedisStore`]; [`RedisStore::check`] looks the servers over |
//! | share them in a fleet | [`RedisStore`], [`docs::redis`] |
//! | put a fast tier before a durable store | [`TieredStore`], [`RedisTier`], [`MemoryTier`] |
//! | keep them in memory, for tests | [`MemoryStore`] |
//! | choose the store by configuration | [`connect`] |
//! | keep them somewhere else | [`docs::custom_store`], [`CasBackend`], [`Store`] |
//! | acknowledge, retry or put a message aside | [`Outcome::capture`], [`Outcome::settle`], [`Disposition`] |
//! | set leases, retention, retries | [`Policy`], [`ExecutorBuilder::policy`] |
//! | check them against my broker | [`Redelivery`] |
//! | refuse a changed payload | [`Fingerprint`] |
//! | refuse a late writer (L2), key a far side (L4) | [`Lease::fencing`], [`Lease::step_key`] |
//! | keep results in another form, or sealed | [`Codec`] |
//! | return something else than `Result` or `Disposition` | [`Replies`], [`Rejects`] |
//! | handle many messages at once | [`Executor::run_batch`] |
//! | do without the attribute | [`Executor::run`], [`Call`], [`Handler`] |
//! | shut down | [`Executor::drain`] |
//! | watch it | [`Observer`], [`Tracing`], [`Executor::counts`] |
//! | test my handlers | [`docs::testing`]: duplicates, crash points, rejections, time |
//! | test without waiting | `idempotent-testkit`: `VirtualClock`, `FaultStore`, `conformance!`, `cas_conformance!` |
//!
//! # Features
//! | feature | brings |
//! |---|---|
//! | `macros` (default) | [`macro@idempotent`] |
//! | `redis` | [`RedisStore`] |
//! | `redis-tls` | `rediss://`: TLS to Redis |
//! | `sqlite` | [`SqliteStore`] |
//! | `tower` | [`IdempotencyLayer`], for any tower service |
//! | `axum` | and [`Http`], extractors, route templates |
//!
//! A feature adds; it never changes what happens.
// The docs link to everything there is; what a feature leaves out is then plain text.
#![cfg_attr(
    not(all(feature = "axum", feature = "macros", feature = "redis", feature = "sqlite")),
    allow(rustdoc::broken_intra_doc_links)
)]

mod connect;
pub mod docs;

pub use self::connect::{ConnectError, connect};
#[doc(hidden)]
pub use idempotent_core::__private;
pub use idempotent_core::*;
#[cfg(feature = "macros")]
pub use idempotent_macros::idempotent;
#[cfg(feature = "redis")]
pub use idempotent_redis::{
    CacheOptions, Checkup, Durability, Finding, RedisCounts, RedisStore, RedisStoreBuilder, RedisTier, Severity,
};
#[cfg(feature = "sqlite")]
pub use idempotent_sqlx::{SqliteStore, SqliteStoreBuilder, Synchronous};
#[cfg(feature = "tower")]
pub use idempotent_tower::{
    Attempt, Caller, Denied, IdempotencyKey, IdempotencyLayer, IdempotencyService, Idempotent, InvalidKey, Kept,
    KeyFormat, KeyRules, KeySyntax, PayloadCheck, Principal, Problem, ProblemKind, ReplayHeader, ResponseBody,
    ResponseFuture, ResponseRules, StorePolicy,
};
#[cfg(feature = "axum")]
pub use idempotent_tower::{AxumJson, Http, HttpRules, Standard};
