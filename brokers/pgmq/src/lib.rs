//! PGMQ, the message queue on PostgreSQL, for the consumer runtime [`idempotent_mq`].
//!
//! [`PgmqSource`] is a [`Source`](idempotent_mq::Source) that reads a queue. With [`PgmqMessage`], a handler deletes its message in
//! its own transaction. [`PgmqPublisher`] implements [`Publish`](idempotent_mq::Publish), and sends in a transaction of the caller.
//! [`PgmqDeadLetters`] lists dead letters and puts them back.
//!
//! ```no_run
//! use std::time::Duration;
//!
//! use idempotent_core::{Executor, MemoryStore};
//! use idempotent_mq::{Consumer, KeyFrom, Message, Messages};
//! use idempotent_pgmq::PgmqSource;
//!
//! #[derive(serde::Deserialize)]
//! struct Order {
//!     number: u64,
//!     cents: u64,
//! }
//!
//! async fn charge(message: Message<Order>) -> Result<(), &'static str> {
//!     match message.body.cents {
//!         0 => Err("nothing to charge"), // retried 16 times, then moved to the queue `orders_dead`
//!         _ => Ok(()),
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // SELECT pgmq.send('orders', '{"number": 1, "cents": 5}');
//! let source = PgmqSource::builder("pgmq://app@localhost/shop", "orders")
//!     .declare()
//!     .visibility_timeout(Duration::from_secs(30))
//!     .connect()
//!     .await?;
//! // Several processes need a store that they share.
//! let executor = Executor::new(MemoryStore::new());
//! let handling = Messages::json().keyed(KeyFrom::body("order.number", |order: &Order| order.number)).run(charge);
//! let consumer = Consumer::builder(source, "billing", &executor).build(handling)?;
//! let counts = consumer.run(async { drop(tokio::signal::ctrl_c().await) }).await?;
//! println!("{counts:?}");
//! # Ok(())
//! # }
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
pub use self::options::URL_FORM;
pub use self::publisher::PgmqPublisher;
pub use self::source::PgmqSource;
pub use self::transaction::PgmqMessage;
