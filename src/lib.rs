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
//! and how levels L2, L3 and L4 deal with it, is in [`docs::guarantees`].
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
//! | put a fast tier before a durable store | [`TieredStore`], [`RedisTier`](store::RedisTier), [`MemoryTier`](store::MemoryTier) |
//! | keep them in memory, for tests | [`MemoryStore`] |
//! | choose the store by configuration | [`connect`] |
//! | keep them somewhere else | [`docs::custom_store`], [`CasBackend`](store::CasBackend), [`Store`] |
//! | consume from a broker | [`mq::Consumer`]; for a broker of my own [`mq::docs::source`] |
//! | consume from RabbitMQ, or publish to it | [`rabbitmq`] |
//! | consume from Redis Streams | [`redis_streams::StreamsSource`] |
//! | deliver a message later, merged, or by priority | [`delay_queue::DelayQueue`] |
//! | have work done at a time, and call it off | [`mq::Delay`], [`delay_queue::DelayQueue`], [`delay::DelayTable`]; [`docs::delay`] |
//! | consume from RocketMQ, or publish to it | `rocketmq` |
//! | acknowledge, retry or put a message aside by myself | [`Outcome::capture`], [`Outcome::settle`], [`Disposition`] |
//! | set leases, retention, retries | [`Policy`], [`ExecutorBuilder::policy`] |
//! | check them against my broker | [`Redelivery`] |
//! | refuse a changed payload | [`Fingerprint`] |
//! | commit effect and record together (L3) | `transaction = tx`, [`Inbox`]; [`docs::guarantees`] |
//! | refuse a late writer (L2), key a far side (L4) | [`Lease::fencing`], [`Lease::step_key`] |
//! | go on where a handler of several steps stopped | [`step()`], [`docs::steps`]; take them back: [`Step::compensate`] |
//! | run messages in their order | `after = …`, `sequence = (stream, number)`, [`Call::after`], [`Executor::register`], [`OnBrokenOrder`](ordering::OnBrokenOrder); [`docs::ordering`] |
//! | let only the newest update through | [`VersionGuard`] |
//! | note each key once, in a transaction of mine | [`UniqueKeys`] |
//! | send a message if my transaction commits, and until it is consumed | `Outbox`, `Relay` (feature `outbox`) |
//! | keep results in another form, or sealed | [`Codec`] |
//! | return something else than `Result` or `Disposition` | [`ReplyStrategy`](reply::ReplyStrategy), [`RejectStrategy`](reply::RejectStrategy) |
//! | handle many messages at once | [`Executor::run_batch`] |
//! | do without the attribute | [`Executor::run`], [`Call`], [`Handler`] |
//! | shut down | [`Executor::drain`] |
//! | watch it | [`Observer`], [`Tracing`], [`Executor::counts`] |
//! | be alerted of what needs a person | [`Alerts`], [`AlertObserver`](alert::AlertObserver); [`docs::alerts`] |
//! | test my handlers | [`docs::testing`]: duplicates, crash points, rejections, time |
//! | test without waiting | `idempotent-testkit`: `VirtualClock`, `FaultStore`, `conformance!`, `cas_conformance!` |
//!
//! # Features
//! | feature | brings |
//! |---|---|
//! | `macros` (default) | [`macro@idempotent`] |
//! | `alert` | [`alert`]: a signed webhook as a sender of alerts |
//! | `alert-email` | and alerts by e-mail |
//! | `delay` | [`delay`]: work that is due at a time, in a table; and `mq` |
//! | `delay-queue` | [`delay_queue`]: a delay queue on Redis; `mq` and `redis` |
//! | `mq` | [`mq`]: the consumer runtime |
//! | `mysql` | [`MySqlStore`], for MariaDB and MySQL |
//! | `mysql-tls` | TLS to them, by `ssl-mode` of the URL |
//! | `postgres` | [`PostgresStore`] |
//! | `postgres-tls` | TLS to it, by `sslmode` of the URL |
//! | `rabbitmq` | [`rabbitmq`]: a queue as a source, and a publisher |
//! | `rabbitmq-tls` | `amqps://`: TLS to RabbitMQ |
//! | `redis` | [`RedisStore`] |
//! | `redis-streams` | [`redis_streams`]: a source for Redis Streams, and a publisher; and `mq` |
//! | `redis-tls` | `rediss://`: TLS to Redis |
//! | `rocketmq` | `rocketmq`: a topic as a source, and a publisher; its client takes minutes to build |
//! | `sqlite` | [`SqliteStore`] |
//! | `tower` | [`IdempotencyLayer`], for any tower service |
//! | `axum` | and [`Http`], extractors, route templates |
//!
//! A feature adds; it never changes what happens.
// The docs link to everything there is; what a feature leaves out is then plain text.
#![cfg_attr(
    not(all(
        feature = "alert-email",
        feature = "axum",
        feature = "delay",
        feature = "delay-queue",
        feature = "macros",
        feature = "mysql",
        feature = "postgres",
        feature = "rabbitmq",
        feature = "redis",
        feature = "redis-streams",
        feature = "sqlite"
    )),
    allow(rustdoc::broken_intra_doc_links)
)]

pub mod alert;
mod connect;
pub mod docs;
pub mod executor;
#[cfg(feature = "tower")]
pub mod http;
pub mod key;
pub mod observe;
pub mod ordering;
pub mod prelude;
pub mod reply;
pub mod steps;
pub mod store;
pub mod transaction;

pub use self::connect::{ConnectError, connect};
#[doc(hidden)]
pub use idempotent_core::__private;
pub use idempotent_core::{
    Alerts, BatchItem, Call, Clock, Codec, Discard, Disposition, Event, Executor, ExecutorBuilder, FencingToken,
    Fingerprint, Handler, Identity, Json, Key, KeyError, KeyExtractor, KeyPart, Lease, MemoryStore, Observer,
    OnConsumed, OnInFlight, OnLeaseLost, OnStoreError, Outcome, Policy, PolicyError, Redelivery, Rejection, RunSummary,
    Scene, Step, Store, StoreError, StoreErrorKind, TieredStore, Timestamp, Token, Tokens, Tracing, step, step_in,
};
#[cfg(feature = "macros")]
pub use idempotent_macros::idempotent;
#[cfg(feature = "mq")]
pub use idempotent_mq as mq;
#[cfg(feature = "rabbitmq")]
pub use idempotent_rabbitmq as rabbitmq;
#[cfg(feature = "redis")]
pub use idempotent_redis::RedisStore;
#[cfg(feature = "redis-streams")]
pub use idempotent_redis_streams as redis_streams;
#[cfg(feature = "rocketmq")]
pub use idempotent_rocketmq as rocketmq;
#[cfg(feature = "mysql")]
pub use idempotent_sqlx::MySqlStore;
#[cfg(feature = "postgres")]
pub use idempotent_sqlx::PostgresStore;
#[cfg(feature = "sqlite")]
pub use idempotent_sqlx::SqliteStore;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub use idempotent_sqlx::VersionGuard;
#[cfg(any(feature = "mysql", feature = "postgres", feature = "sqlite"))]
pub use idempotent_sqlx::{Inbox, UniqueKeys};
#[cfg(all(feature = "outbox", any(feature = "mysql", feature = "postgres", feature = "sqlite")))]
pub use idempotent_sqlx::{Outbox, Relay};
#[cfg(feature = "axum")]
pub use idempotent_tower::Http;
#[cfg(feature = "tower")]
pub use idempotent_tower::{IdempotencyKey, IdempotencyLayer};

/// Delay tables: work that is due at a time, scheduled in the transaction that the work belongs to.
///
/// The guide is `docs::delay`.
#[cfg(all(feature = "delay", any(feature = "mysql", feature = "postgres", feature = "sqlite")))]
pub mod delay {
    pub use idempotent_sqlx::{
        DelayDb, DelayTable, DelayTableBuilder, DelayTableCounts, DelayTableDeadLetters, DelayTableSource,
        DelayTableTag, ScheduledTask,
    };
}

/// A delay queue on Redis: messages that are due at a time, merged within an interval, or by priority.
#[cfg(feature = "delay-queue")]
pub mod delay_queue {
    pub use idempotent_redis::{
        CommitAndReceive, DelayCounts, DelayDeadLetters, DelayDelivery, DelayMessage, DelayProducer, DelayQueue,
        DelayQueueBuilder, DelayReceiver, DelaySource, DelayTag, RetryDelay, RollbackResult, SendReceipt, SettleResult,
    };
}

/// The outbox and its relay: messages that are written in a transaction, and sent after its commit.
///
/// The guide is `docs::outbox`.
#[cfg(all(feature = "outbox", any(feature = "mysql", feature = "postgres", feature = "sqlite")))]
pub mod outbox {
    pub use idempotent_sqlx::{
        AuditEntry, ConsumerProgress, DeferReason, Enqueued, Outbox, OutboxBuilder, OutboxDb, OutboxEntry, OutboxError,
        OutboxErrorKind, OutboxRecord, OutboxStatus, QueueOffset, Relay, RelayCounts, RelayRound, ResendDecision,
        ResendPolicy,
    };
}
