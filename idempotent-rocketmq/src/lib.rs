//! RocketMQ for [`idempotent`](https://docs.rs/idempotent-rs): a topic as a source for the consumer runtime
//! ([`RocketSource`]), and a publisher that says what it knows ([`RocketPublisher`]).
//!
//! ```no_run
//! use idempotent_core::{Executor, MemoryStore};
//! use idempotent_mq::{Consumer, KeyFrom, Message, Messages};
//! use idempotent_rocketmq::{RocketMessage, RocketPublisher, RocketSource};
//!
//! #[derive(serde::Deserialize)]
//! struct Order {
//!     number: u64,
//!     cents: u64,
//! }
//!
//! // Any error will do: its message comes again, and is put aside after 17 runs.
//! async fn charge(message: Message<Order>) -> Result<(), &'static str> {
//!     match message.body.cents {
//!         0 => Err("nothing to charge"),
//!         cents => Ok(println!("order {}: charged {cents}", message.body.number)),
//!     }
//! }
//!
//! #[tokio::main]
//! async fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let source = RocketSource::builder("localhost:9876", "orders", "billing").build()?;
//!     source.declare(4).await?; // where nobody else has made the topic
//!     // In earnest a store that outlives the process, and that all consumers of the group share.
//!     let executor = Executor::new(MemoryStore::new());
//!     let handling = Messages::json().keyed(KeyFrom::body("order.number", |order: &Order| order.number)).run(charge);
//!     let consumer = Consumer::builder(source, "billing", &executor).build(handling)?;
//!     let stop = tokio::time::sleep(std::time::Duration::from_secs(10)); // on SIGTERM, in earnest
//!     let consuming = tokio::spawn(consumer.run(stop));
//!
//!     // Twice the same order, under two ids: the second is acknowledged without being run.
//!     let publisher = RocketPublisher::builder("localhost:9876").build()?;
//!     for id in ["m-1", "m-2"] {
//!         publisher.publish("orders", &RocketMessage::new(id, r#"{"number":17,"cents":500}"#)).await?;
//!     }
//!     println!("{:?}", consuming.await??);
//!     Ok(())
//! }
//! ```
#![doc = include_str!("docs/broker.md")]
#![doc = include_str!("docs/limits.md")]
// The client's futures are deep.
#![recursion_limit = "512"]
mod call_queue;
mod client;
mod delay_levels;
mod drain;
mod error;
mod headers;
mod message;
mod publisher;
mod queues;
mod retry_headers;
mod session;
mod settings;
mod settler;
mod source;
mod tag;
mod topics;

pub use self::error::SettingError;
pub use self::message::RocketMessage;
pub use self::publisher::{PublishError, PublishErrorKind, RocketPublisher, RocketPublisherBuilder};
pub use self::source::{RocketSource, RocketSourceBuilder};
pub use self::tag::RocketTag;
