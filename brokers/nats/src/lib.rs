//! NATS JetStream for the consumer runtime [`idempotent_mq`], and as a store.
//!
//! [`JetStreamSource`] is a [`Source`](idempotent_mq::Source) that reads a stream as one member of a durable pull consumer.
//! [`JetStreamPublisher`] implements [`Publish`](idempotent_mq::Publish) and reports the result for each message.
//! [`JetStreamDeadLetters`] lists dead letters and puts them back. [`KvBackend`] keeps the records of a store in a key-value bucket.
//!
//! ```no_run
//! use idempotent_core::{Executor, MemoryStore};
//! use idempotent_mq::{Consumer, MessageHandler};
//! use idempotent_nats::JetStreamSource;
//!
//! /// Consumes with a handler, such as `Messages::json().annotated(charge)` for a function with the attribute.
//! async fn consume(handler: MessageHandler) -> Result<(), Box<dyn std::error::Error>> {
//!     // nats pub orders.new '{"number": 1}'
//!     let source = JetStreamSource::builder("nats://127.0.0.1", "ORDERS", "billing").declare(["orders.>"]).connect().await?;
//!     // Several processes need a store that they share.
//!     let executor = Executor::new(MemoryStore::new());
//!     let consumer = Consumer::builder(source, "billing", &executor).build(handler)?;
//!     println!("{:?}", consumer.run(async { drop(tokio::signal::ctrl_c().await) }).await?);
//!     Ok(())
//! }
//! ```
#![doc = include_str!("docs/jetstream.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]
mod bucket;
mod builder;
mod carrier;
mod connection;
mod dead_letters;
mod declare;
mod delayed;
mod error;
mod kv_backend;
mod number;
mod options;
mod publisher;
mod pulls;
mod raw_message;
mod retry_marks;
mod settler;
mod source;
mod unreadable;

pub use self::builder::JetStreamSourceBuilder;
pub use self::dead_letters::JetStreamDeadLetters;
pub use self::declare::StartPosition;
pub use self::kv_backend::KvBackend;
pub use self::options::{Server, URL_FORM};
pub use self::publisher::JetStreamPublisher;
pub use self::settler::JetStreamTag;
pub use self::source::JetStreamSource;
/// The client library, whose `ConnectOptions` a [`Server`] takes.
pub use async_nats;
