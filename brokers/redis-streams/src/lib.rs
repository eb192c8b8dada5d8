//! Redis Streams for the consumer runtime [`idempotent_mq`].
//!
//! [`StreamsSource`] is a [`Source`](idempotent_mq::Source) that reads a stream as one consumer of a group.
//! [`StreamsPublisher`] implements [`Publish`](idempotent_mq::Publish) and reports the result for each message.
//! [`StreamsDeadLetters`] lists dead letters and puts them back.
//!
//! ```no_run
//! use idempotent_core::{Executor, MemoryStore};
//! use idempotent_mq::{Consumer, MessageHandler};
//! use idempotent_redis_streams::{StartPosition, StreamsSource};
//!
//! /// Consumes with a handler, such as `Messages::json().annotated(charge)` for a function with the attribute.
//! async fn consume(handler: MessageHandler) -> Result<(), Box<dyn std::error::Error>> {
//!     // XADD orders * body '{"number": 1}'
//!     let source = StreamsSource::builder("redis://127.0.0.1", "orders", "billing").declare(StartPosition::Beginning);
//!     let source = source.connect().await?;
//!     // Several processes need a store that they share.
//!     let executor = Executor::new(MemoryStore::new());
//!     let consumer = Consumer::builder(source, "billing", &executor).build(handler)?;
//!     println!("{:?}", consumer.run(async { drop(tokio::signal::ctrl_c().await) }).await?);
//!     Ok(())
//! }
//! ```
#![doc = include_str!("docs/streams.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]
mod builder;
mod carrier;
mod connection;
mod dead_letters;
mod due_times;
mod error;
mod held_entries;
mod options;
mod publisher;
mod reply;
mod retry_mark;
mod scripts;
mod settler;
mod source;

pub use self::builder::StreamsSourceBuilder;
pub use self::connection::{Server, URL_FORM};
pub use self::dead_letters::StreamsDeadLetters;
pub use self::options::{StartPosition, TrimPolicy};
pub use self::publisher::StreamsPublisher;
pub use self::settler::StreamsTag;
pub use self::source::StreamsSource;
/// The client library, whose `Client` a [`Server`] takes.
pub use redis;
