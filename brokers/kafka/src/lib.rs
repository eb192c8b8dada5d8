//! Kafka for the consumer runtime [`idempotent_mq`].
//!
//! [`KafkaSource`] is a [`Source`](idempotent_mq::Source) that reads a topic as one member of a consumer group.
//! [`KafkaPublisher`] implements [`Publish`](idempotent_mq::Publish) and reports the result for each message.
//! [`KafkaDeadLetters`] lists dead letters and puts them back.
//!
//! ```no_run
//! use idempotent_core::{Executor, MemoryStore};
//! use idempotent_kafka::KafkaSource;
//! use idempotent_mq::{Consumer, MessageHandler};
//!
//! /// Consumes with a handler, such as `Messages::json().annotated(charge)` for a function with the attribute.
//! async fn consume(handler: MessageHandler) -> Result<(), Box<dyn std::error::Error>> {
//!     // echo '{"number": 1}' | kafka-console-producer --bootstrap-server localhost:9092 --topic orders
//!     let source = KafkaSource::builder("kafka://127.0.0.1", "orders", "billing").declare(6).connect().await?;
//!     // Several processes need a store that they share.
//!     let executor = Executor::new(MemoryStore::new());
//!     let consumer = Consumer::builder(source, "billing", &executor).build(handler)?;
//!     println!("{:?}", consumer.run(async { drop(tokio::signal::ctrl_c().await) }).await?);
//!     Ok(())
//! }
//! ```
#![doc = include_str!("docs/kafka.md")]
#![doc = include_str!("docs/limits.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]
mod assignment;
mod builder;
mod carrier;
mod commits;
mod connection_error;
mod dead_letters;
mod error;
mod group_events;
mod letter_clients;
mod member;
mod message;
mod options;
mod output;
mod outputs;
mod partition;
mod place;
mod producer;
mod publisher;
mod settler;
mod source;
mod topics;
mod transactions;

pub use self::builder::{KafkaSourceBuilder, StartPosition};
pub use self::dead_letters::KafkaDeadLetters;
pub use self::options::{Server, URL_FORM};
pub use self::output::KafkaOutput;
pub use self::publisher::KafkaPublisher;
pub use self::settler::KafkaTag;
pub use self::source::KafkaSource;
/// The client library, whose `ClientConfig` a [`Server`] takes.
pub use rdkafka;
