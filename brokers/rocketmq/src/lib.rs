//! RocketMQ for the consumer runtime [`idempotent_mq`].
//!
//! [`RocketSource`] is a [`Source`](idempotent_mq::Source) that consumes a topic as a member of a group.
//! [`RocketPublisher`] implements [`Publish`](idempotent_mq::Publish) and reports the known state of each message.
//! [`RocketDeadLetters`] implements [`DeadLetters`](idempotent_mq::DeadLetters): it lists, redrives and removes dead letters.
//! [`RocketDelay`] implements [`Delay`](idempotent_mq::Delay) by the delay levels of the broker.
//!
//! ```no_run
//! use idempotent_core::{Executor, MemoryStore};
//! use idempotent_mq::{Consumer, KeyFrom, Message, Messages, OutboundMessage};
//! use idempotent_rocketmq::{RocketPublisher, RocketSource};
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
//!     let source = RocketSource::builder("rocketmq://localhost", "orders", "billing").build()?;
//!     source.declare(4).await?; // unless the topic exists
//!     // In production, use a durable store that all consumers of the group share.
//!     let executor = Executor::new(MemoryStore::new());
//!     let handling = Messages::json().keyed(KeyFrom::body("order.number", |order: &Order| order.number)).run(charge);
//!     let consumer = Consumer::builder(source, "billing", &executor).build(handling)?;
//!     let stop = tokio::time::sleep(std::time::Duration::from_secs(10)); // in production: SIGTERM
//!     let consuming = tokio::spawn(consumer.run(stop));
//!
//!     // The same order under two ids: the second message is acknowledged without a run.
//!     let publisher = RocketPublisher::builder("rocketmq://localhost").build()?;
//!     for id in ["m-1", "m-2"] {
//!         publisher.publish(&OutboundMessage::new("orders", id, r#"{"number":17,"cents":500}"#)).await?;
//!     }
//!     println!("{:?}", consuming.await??);
//!     Ok(())
//! }
//! ```
#![doc = include_str!("docs/broker.md")]
#![doc = include_str!("docs/limits.md")]
// The client's futures are deeply nested.
#![recursion_limit = "512"]
#![cfg_attr(docsrs, feature(doc_cfg))]
mod call_queue;
mod carrier;
mod client;
mod dead_letters;
mod delay;
mod delay_levels;
mod drain;
mod error;
mod headers;
mod intake;
mod listener;
mod message;
mod producer;
mod properties;
mod publisher;
mod queue_choice;
mod queue_position;
mod session;
mod settings;
mod settler;
mod source;
mod topics;

pub use self::client::URL_FORM;
pub use self::dead_letters::{RocketDeadLetters, RocketDeadLettersBuilder};
pub use self::delay::RocketDelay;
pub use self::error::SettingError;
pub use self::publisher::{RocketPublisher, RocketPublisherBuilder};
pub use self::settler::RocketTag;
pub use self::source::{RocketSource, RocketSourceBuilder};
