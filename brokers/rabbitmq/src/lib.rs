//! RabbitMQ for the consumer runtime [`idempotent_mq`].
//!
//! [`RabbitSource`] is a [`Source`](idempotent_mq::Source) that consumes a queue.
//! [`RabbitPublisher`] implements [`Publish`](idempotent_mq::Publish) and reports the known state of each message.
//! [`RabbitDelay`] implements [`Delay`](idempotent_mq::Delay) by queues of the broker.
//!
//! ```no_run
//! use idempotent_core::{Executor, MemoryStore};
//! use idempotent_mq::{Consumer, MessageHandler};
//! use idempotent_rabbitmq::{Queue, RabbitSource};
//!
//! /// Consumes with a handler, such as `Messages::json().annotated(charge)` for a function with the attribute.
//! async fn consume(handler: MessageHandler) -> Result<(), Box<dyn std::error::Error>> {
//!     // rabbitmqadmin publish message --routing-key orders --payload '{"number": 1}'
//!     let source = RabbitSource::builder("amqp://guest:guest@localhost/%2f", Queue::quorum("orders")).build()?;
//!     source.declare().await?;
//!     // Several processes need a store that they share.
//!     let executor = Executor::new(MemoryStore::new());
//!     let consumer = Consumer::builder(source, "billing", &executor).build(handler)?;
//!     println!("{:?}", consumer.run(async { drop(tokio::signal::ctrl_c().await) }).await?);
//!     Ok(())
//! }
//! ```
#![doc = include_str!("docs/broker.md")]
#![doc = include_str!("docs/limits.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]
mod ack_batcher;
mod alarm;
mod carrier;
mod caution;
mod copies;
mod dead_letters;
mod delay;
mod delay_queues;
mod error;
mod field_value;
mod frame_limit;
mod headers;
mod intake;
mod message;
mod options;
mod properties;
mod publish_connection;
mod publisher;
mod queue;
mod retry_levels;
mod route;
mod session;
mod settings;
mod settler;
mod shared_connection;
mod source;
mod topology;

pub use self::dead_letters::RabbitDeadLetters;
pub use self::delay::RabbitDelay;
pub use self::delay_queues::DelayTopology;
pub use self::error::SettingError;
pub use self::field_value::FieldValue;
pub use self::message::RabbitProperties;
pub use self::options::{Server, URL_FORM};
pub use self::publisher::{RabbitPublisher, RabbitPublisherBuilder};
pub use self::queue::{Queue, QueueKind};
pub use self::route::Route;
pub use self::settler::RabbitTag;
pub use self::source::{RabbitSource, RabbitSourceBuilder};
pub use self::topology::{Exchange, Topology};
/// The client library, whose types a [`Server`] takes.
pub use lapin;
