//! RabbitMQ for the consumer runtime [`idempotent_mq`].
//!
//! [`RabbitSource`] is a [`Source`](idempotent_mq::Source) that consumes a queue.
//! [`RabbitPublisher`] implements [`Publish`](idempotent_mq::Publish) and reports the known state of each message.
//! [`RabbitDelay`] implements [`Delay`](idempotent_mq::Delay) by queues of the broker.
//!
//! ```no_run
//! use idempotent_core::{Executor, MemoryStore};
//! use idempotent_mq::{Consumer, KeyFrom, Message, Messages, OutboundMessage};
//! use idempotent_rabbitmq::{Queue, RabbitPublisher, RabbitSource};
//!
//! #[derive(serde::Deserialize)]
//! struct Order {
//!     number: u64,
//!     cents: u64,
//! }
//!
//! // An error leads to a retry. After 17 runs the message is dead-lettered.
//! async fn charge(message: Message<Order>) -> Result<(), &'static str> {
//!     match message.body.cents {
//!         0 => Err("nothing to charge"),
//!         cents => Ok(println!("order {}: charged {cents}", message.body.number)),
//!     }
//! }
//!
//! #[tokio::main]
//! async fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let url = "amqp://guest:guest@localhost/%2f";
//!     let source = RabbitSource::builder(url, Queue::quorum("orders")).build()?;
//!     source.declare().await?; // publishing below needs the queue, which the consumer declares later
//!     // In production, use a durable store that all consumers of the queue share.
//!     let executor = Executor::new(MemoryStore::new());
//!     let handling = Messages::json().keyed(KeyFrom::body("order.number", |order: &Order| order.number)).run(charge);
//!     let consumer = Consumer::builder(source, "billing", &executor).build(handling)?;
//!     let stop = tokio::time::sleep(std::time::Duration::from_secs(5)); // in production: SIGTERM
//!     let consuming = tokio::spawn(consumer.run(stop));
//!
//!     // The same order under two ids: the second message is acknowledged without a run.
//!     let publisher = RabbitPublisher::builder(url).build()?;
//!     for id in ["m-1", "m-2"] {
//!         publisher.publish(&OutboundMessage::new("orders", id, r#"{"number":17,"cents":500}"#)).await?;
//!     }
//!     println!("{:?}", consuming.await??);
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
pub use self::options::URL_FORM;
pub use self::publisher::{RabbitPublisher, RabbitPublisherBuilder};
pub use self::queue::{Queue, QueueKind};
pub use self::route::Route;
pub use self::settler::RabbitTag;
pub use self::source::{RabbitSource, RabbitSourceBuilder};
pub use self::topology::{Exchange, Topology};
