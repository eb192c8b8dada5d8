//! Consumer-side idempotency for message and REST handlers: one attribute protects a handler against duplicates.
//!
//! ```
//! use idempotent::{Executor, MemoryStore, Outcome, Rejection, idempotent};
//!
//! #[idempotent(scene = mq, scope = "charge", key = order)]
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
//!     // Without an executor, the handler does not run.
//!     assert!(matches!(charge(17, 500).await, Err(Rejection::NoExecutor { .. })));
//! }
//! ```
//!
//! | case | handler |
//! |---|---|
//! | a duplicate of a consumed key | does not run, within the retention; the call gets the recorded result |
//! | a duplicate of a key in flight | does not run; the call is rejected with a retry delay |
//! | a failure | frees the key, and the next delivery runs |
//! | a crash | the next delivery runs once the lease has expired |
//!
//! This is guarantee level L1. After a crash between the effect and its record, the effect happens again; [`docs::guarantees`]
//! describes the levels L2, L3 and L4, which cover this case.
//!
//! | I want to … | look at |
//! |---|---|
//! | get started | [`docs::getting_started`] |
//! | know the guarantees | [`docs::guarantees`] |
//! | make a handler idempotent | [`macro@idempotent`], with all arguments and defaults |
//! | choose a store, a level and a key | [`docs::choosing`], [`docs::keys`]; for a payment service [`docs::payments`] |
//! | protect REST handlers | [`docs::http`]: [`IdempotencyLayer`], [`Http`] for annotated ones |
//! | reject a form that is submitted twice | [`Tokens`], and `by = token` |
//! | reject two equal calls in a row | `by = param`, [`Policy::window`] |
//! | store records in a file, without a server | [`SqliteStore`] |
//! | store records on Redis or Valkey | [`RedisStore`]; [`Health`](store::Health) checks the servers |
//! | share records between all instances | [`RedisStore`], [`docs::redis`] |
//! | put a fast tier in front of a durable store | [`TieredStore`], [`RedisTier`](store::RedisTier), [`SqliteTier`](store::SqliteTier), [`MemoryTier`](store::MemoryTier); [`docs::tiers`] |
//! | store records in memory, for tests | [`MemoryStore`] |
//! | store records in a table of Amazon DynamoDB | `dynamodb` |
//! | select the store by configuration | [`connect`] |
//! | store records in another system | [`docs::custom_stores`], [`CasBackend`](store::CasBackend), [`Store`] |
//! | consume from a broker | [`docs::consumers`], [`docs::brokers`], [`mq::Consumer`]; for another broker [`mq::docs::source`] |
//! | test a consumer without a broker | [`mq::MemoryQueue`] |
//! | consume from RabbitMQ, or publish to it | [`rabbitmq`] |
//! | consume from Redis Streams | [`redis_streams::StreamsSource`] |
//! | consume from NATS JetStream, or publish to it | [`nats`] |
//! | consume from PGMQ, or publish to it | [`pgmq`] |
//! | delay, merge or prioritise messages | [`delay_queue::DelayQueue`] |
//! | schedule work and cancel it | [`mq::Delay`], [`delay_queue::DelayQueue`], [`delay::DelayTable`]; [`docs::delay`] |
//! | consume from RocketMQ, or publish to it | `rocketmq` |
//! | consume from Kafka, or publish to it | `kafka` |
//! | consume from Amazon SQS, or publish to it | `sqs` |
//! | acknowledge, retry or dead-letter messages in my own consumer | [`Outcome::capture`], [`Outcome::settle`], [`Disposition`] |
//! | set leases, retention, retries | [`Policy`], [`ExecutorBuilder::policy`] |
//! | check these settings against my broker | [`Redelivery`] |
//! | reject a changed payload | [`Fingerprint`] |
//! | commit effect and record together (L3) | `transaction = tx`, [`Inbox`]; [`docs::guarantees`] |
//! | reject a late writer (L2), or send a key to a downstream service (L4) | [`Lease::fencing`], [`Lease::step_key`] |
//! | continue a handler of several steps where it stopped | [`step()`], [`docs::steps`]; to undo steps: [`Step::compensate`] |
//! | run messages in order | `after = …`, `sequence = (stream, number)`, [`Call::after`], [`Executor::register`], [`OnBrokenOrder`](ordering::OnBrokenOrder); [`docs::ordering`] |
//! | accept only the newest update | [`VersionGuard`] |
//! | record each key once, in my own transaction | [`UniqueKeys`] |
//! | publish a message if my transaction commits, and resend it until it is consumed | `Outbox`, `Relay` (feature `outbox`); [`docs::outbox`] |
//! | store results in another format, or encrypted | [`Codec`] |
//! | return a type other than `Result` or `Disposition` | [`ReplyStrategy`](reply::ReplyStrategy), [`RejectStrategy`](reply::RejectStrategy) |
//! | handle many messages at once | [`Executor::run_batch`] |
//! | work without the attribute | [`Executor::run`], [`Call`], [`Handler`] |
//! | shut down | [`docs::shutting_down`], [`Executor::drain`], [`Executor::serve_until`] |
//! | list keys, or make a key claimable again | [`Search`](store::Search) and [`Admin`](store::Admin), by [`Store::capabilities`] |
//! | remove expired records | [`Purge`](store::Purge); [`docs::sizing`] |
//! | find the cause of a problem | [`docs::troubleshooting`], [`docs::faq`] |
//! | replace another tool | [`docs::coming_from`] |
//! | monitor runs | [`Observer`], [`Tracing`], [`Executor::counts`] |
//! | show and repair keys in a browser | [`console`]; [`docs::console`] |
//! | export metrics | [`metrics`]; [`docs::metrics`] |
//! | export traces | [`otel`]; [`docs::traces`] |
//! | send alerts to operators | [`Alerts`], [`AlertObserver`](alert::AlertObserver); [`docs::alerts`] |
//! | test my handlers | [`docs::testing`]: duplicates, crash points, rejections, time |
//! | test without waiting | `idempotent-testkit`: `VirtualClock`, `FaultStore`, `conformance!`, `cas_conformance!` |
//!
//! # Features
//! | feature | adds |
//! |---|---|
//! | `kafka` | `kafka`: a topic as a source, a publisher, and dead letters; its client takes minutes to build; enables `mq` |
//! | `kafka-tls`, `kafka-zstd` | TLS and SASL SCRAM to Kafka, by OpenSSL; messages that are compressed by zstd |
//! | `macros` (default) | [`macro@idempotent`] |
//! | `alert` | [`alert`]: alerts by a signed webhook |
//! | `alert-email` | alerts by webhook and by e-mail |
//! | `delay` | [`delay`]: scheduled work in a database table; enables `mq` |
//! | `delay-queue` | [`delay_queue`]: a delay queue on Redis; enables `mq` and `redis` |
//! | `dynamodb` | `dynamodb`: a table of Amazon DynamoDB as a store; its client takes minutes to build |
//! | `console` | [`console`]: pages for operators, as an axum router |
//! | `metrics` | [`metrics`]: metrics of runs, consumers, outboxes, queues and stores, by the facade `metrics` |
//! | `mq` | [`mq`]: the consumer runtime |
//! | `mysql` | [`MySqlStore`], for MariaDB and MySQL |
//! | `mysql-tls` | TLS connections to MariaDB and MySQL, set by `ssl-mode` in the URL; MySQL 8 and later need it for users with a password |
//! | `nats` | [`nats`]: a stream of NATS JetStream as a source, a publisher, and dead letters, and a key-value bucket as a store; enables `mq` |
//! | `otel` | [`otel`]: traces by the conventions of OpenTelemetry; with `mq`, trace context in messages |
//! | `outbox` | `outbox`: messages in a database transaction, and the relay that publishes them; enables `mq` |
//! | `pgmq` | [`pgmq`]: a queue of PGMQ on PostgreSQL as a source, a publisher, and dead letters; enables `mq` |
//! | `pgmq-tls` | TLS connections to PGMQ, set by `sslmode` in the URL |
//! | `postgres` | [`PostgresStore`] |
//! | `postgres-tls` | TLS connections to PostgreSQL, set by `sslmode` in the URL |
//! | `rabbitmq` | [`rabbitmq`]: a queue as a source, and a publisher |
//! | `rabbitmq-tls` | `amqps://`: TLS to RabbitMQ |
//! | `redis` | [`RedisStore`] |
//! | `redis-streams` | [`redis_streams`]: a source for Redis Streams, and a publisher; enables `mq` |
//! | `redis-tls` | `rediss://`: TLS to Redis |
//! | `rocketmq` | `rocketmq`: a topic as a source, a publisher, and dead letters; its client takes minutes to build |
//! | `rocketmq-tls` | TLS to RocketMQ |
//! | `sqlite` | [`SqliteStore`] |
//! | `sqs` | `sqs`: a queue of Amazon SQS as a source, a publisher, and dead letters; its client takes minutes to build; enables `mq` |
//! | `tower` | [`IdempotencyLayer`], for any tower service |
//! | `tonic` | [`grpc::GrpcLayer`], for gRPC services of tonic; enables `tower` |
//! | `actix-web` | [`http::IdempotencyMiddleware`], for actix-web; enables `tower` |
//! | `axum` | `tower`, with [`Http`], extractors and route templates |
//!
//! Features only add items. No feature changes the behaviour of others.
#![cfg_attr(docsrs, feature(doc_cfg))]
// The docs link to items of all features. Without a feature, links to its items become plain text.
#![cfg_attr(
    not(all(
        feature = "actix-web",
        feature = "alert-email",
        feature = "axum",
        feature = "delay",
        feature = "delay-queue",
        feature = "macros",
        feature = "console",
        feature = "metrics",
        feature = "mysql",
        feature = "nats",
        feature = "otel",
        feature = "pgmq",
        feature = "postgres",
        feature = "rabbitmq",
        feature = "redis",
        feature = "redis-streams",
        feature = "sqlite",
        feature = "tonic"
    )),
    allow(rustdoc::broken_intra_doc_links)
)]

pub mod alert;
mod connect;
pub mod docs;
pub mod executor;
#[cfg(feature = "tonic")]
pub mod grpc;
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

pub use self::connect::{Connect, ConnectError, connect};
#[cfg(feature = "console")]
pub use idempotent_console as console;
#[doc(hidden)]
pub use idempotent_core::__private;
pub use idempotent_core::{
    Alerts, BatchItem, Call, Clock, Codec, Discard, Disposition, Event, Executor, ExecutorBuilder, FencingToken,
    Fingerprint, Handler, Identity, Json, Key, KeyError, KeyExtractor, KeyPart, Lease, MemoryStore, Observer,
    OnConsumed, OnInFlight, OnLeaseLost, OnStoreError, Outcome, Policy, PolicyError, Redelivery, Rejection, RunSummary,
    Scene, Step, Store, StoreError, StoreErrorKind, TieredStore, Timestamp, Token, Tokens, Tracing, step, step_in,
};
#[cfg(feature = "dynamodb")]
pub use idempotent_dynamodb as dynamodb;
#[cfg(feature = "kafka")]
pub use idempotent_kafka as kafka;
#[cfg(feature = "macros")]
pub use idempotent_macros::idempotent;
#[cfg(feature = "metrics")]
pub use idempotent_metrics as metrics;
#[cfg(feature = "mq")]
pub use idempotent_mq as mq;
#[cfg(feature = "nats")]
pub use idempotent_nats as nats;
#[cfg(feature = "otel")]
pub use idempotent_otel as otel;
#[cfg(feature = "pgmq")]
pub use idempotent_pgmq as pgmq;
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
pub use idempotent_sqlx::{Inbox, UniqueKeys, sqlx};
#[cfg(all(feature = "outbox", any(feature = "mysql", feature = "postgres", feature = "sqlite")))]
pub use idempotent_sqlx::{Outbox, Relay};
#[cfg(feature = "sqs")]
pub use idempotent_sqs as sqs;
#[cfg(feature = "axum")]
pub use idempotent_tower::Http;
#[cfg(feature = "tower")]
pub use idempotent_tower::{IdempotencyKey, IdempotencyLayer};

/// Delay tables: work that is due later, scheduled in the transaction that the work belongs to.
///
/// The guide is [`docs::delay`].
#[cfg(all(feature = "delay", any(feature = "mysql", feature = "postgres", feature = "sqlite")))]
pub mod delay {
    pub use idempotent_sqlx::{
        CappedCount, DelayDb, DelayTable, DelayTableBacklog, DelayTableBuilder, DelayTableCounts,
        DelayTableDeadLetters, DelayTableSource, DelayTableTag, ScheduledTask,
    };
}

/// A delay queue on Redis: messages that are due at a time, merged within an interval, or by priority.
#[cfg(feature = "delay-queue")]
pub mod delay_queue {
    pub use idempotent_redis::{
        CommitAndReceive, DelayCounts, DelayDeadLetters, DelayDelivery, DelayMessage, DelayProducer, DelayQueue,
        DelayQueueBuilder, DelayReceiver, DelaySource, DelayTag, RetryDelay, RollbackResult, SendReceipt, Server,
        SettleResult,
    };
}

/// The outbox and its relay: messages that are written in a transaction and published after its commit.
///
/// The guide is [`docs::outbox`].
#[cfg(all(feature = "outbox", any(feature = "mysql", feature = "postgres", feature = "sqlite")))]
pub mod outbox {
    pub use idempotent_sqlx::{
        AuditEntry, CappedCount, ConsumerProgress, DeferReason, Enqueued, Outbox, OutboxBacklog, OutboxBuilder,
        OutboxCounts, OutboxDb, OutboxEntry, OutboxError, OutboxErrorKind, OutboxRecord, OutboxStatus, QueueOffset,
        Relay, RelayCounters, RelayCounts, RelayRound, ResendDecision, ResendPolicy,
    };
}
