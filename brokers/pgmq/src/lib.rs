//! PGMQ, the message queue on PostgreSQL, for the consumer runtime [`idempotent_mq`].
//!
//! [`PgmqSource`] is a [`Source`](idempotent_mq::Source) that reads a queue. With [`PgmqMessage`], a handler deletes its message in
//! its own transaction. [`PgmqPublisher`] implements [`Publish`](idempotent_mq::Publish), and sends in a transaction of the caller.
//! [`PgmqDeadLetters`] lists dead letters and puts them back.
//!
//! ```no_run
//! use idempotent_core::{Executor, MemoryStore};
//! use idempotent_mq::{Consumer, MessageHandler};
//! use idempotent_pgmq::PgmqSource;
//!
//! /// Consumes with a handler, such as `Messages::json().annotated(charge)` for a function with the attribute.
//! async fn consume(handler: MessageHandler) -> Result<(), Box<dyn std::error::Error>> {
//!     // SELECT pgmq.send('orders', '{"number": 1}');
//!     let source = PgmqSource::builder("pgmq://app@localhost/shop", "orders").declare().connect().await?;
//!     // Several processes need a store that they share.
//!     let executor = Executor::new(MemoryStore::new());
//!     let consumer = Consumer::builder(source, "billing", &executor).build(handler)?;
//!     println!("{:?}", consumer.run(async { drop(tokio::signal::ctrl_c().await) }).await?);
//!     Ok(())
//! }
//! ```
#![doc = include_str!("docs/pgmq.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]
mod acks;
mod body;
mod builder;
mod carrier;
mod connections;
mod dead_letters;
mod error;
mod message;
mod options;
mod pooler;
mod publisher;
mod queue_name;
mod settler;
mod setup;
mod source;
mod statements;
mod transaction;
mod wakeups;

pub use self::builder::PgmqSourceBuilder;
pub use self::dead_letters::PgmqDeadLetters;
pub use self::message::PgmqTag;
pub use self::options::{Server, URL_FORM};
pub use self::publisher::PgmqPublisher;
pub use self::source::PgmqSource;
pub use self::transaction::PgmqMessage;
/// The client library, whose `PgConnectOptions` a [`Server`] takes.
pub use sqlx;
