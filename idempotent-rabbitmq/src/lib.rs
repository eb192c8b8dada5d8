//! RabbitMQ for [`idempotent`](https://docs.rs/idempotent-rs): a queue as a source for the consumer runtime
//! ([`RabbitSource`]), and a publisher that says what it knows ([`RabbitPublisher`]).
//!
//! ```no_run
//! use idempotent_core::{Executor, MemoryStore};
//! use idempotent_mq::{Consumer, KeyFrom, Message, Messages};
//! use idempotent_rabbitmq::{RabbitMessage, RabbitPublisher, Queue, RabbitSource, Route};
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
//!     let url = "amqp://guest:guest@localhost/%2f";
//!     let source = RabbitSource::builder(url, Queue::quorum("orders")).build()?;
//!     source.declare().await?; // otherwise when it is first consumed: too late for what is published before
//!     // In earnest a store that outlives the process, and that all consumers of the queue share.
//!     let executor = Executor::new(MemoryStore::new());
//!     let handling = Messages::json().keyed(KeyFrom::body("order.number", |order: &Order| order.number)).run(charge);
//!     let consumer = Consumer::builder(source, "billing", &executor).build(handling)?;
//!     let stop = tokio::time::sleep(std::time::Duration::from_secs(5)); // on SIGTERM, in earnest
//!     let consuming = tokio::spawn(consumer.run(stop));
//!
//!     // Twice the same order, under two ids: the second is acknowledged without being run.
//!     let publisher = RabbitPublisher::builder(url).build()?;
//!     for id in ["m-1", "m-2"] {
//!         publisher.publish(&Route::queue("orders"), &RabbitMessage::new(id, r#"{"number":17,"cents":500}"#)).await?;
//!     }
//!     println!("{:?}", consuming.await??);
//!     Ok(())
//! }
//! ```
#![doc = include_str!("docs/broker.md")]
#![doc = include_str!("docs/limits.md")]
mod acks;
mod address;
mod confirm;
mod dead_letters;
mod delay;
mod delays;
mod error;
mod field;
mod headers;
mod ladder;
mod marks;
mod outgoing;
mod publisher;
mod queue;
mod session;
mod settings;
mod settle;
mod source;
mod topology;

pub use self::dead_letters::RabbitDeadLetters;
pub use self::delay::RabbitDelay;
pub use self::delays::DelayTopology;
pub use self::error::SettingError;
pub use self::field::FieldValue;
pub use self::outgoing::{RabbitMessage, Route};
pub use self::publisher::{PublishError, PublishErrorKind, RabbitPublisher, RabbitPublisherBuilder};
pub use self::queue::{Queue, QueueKind};
pub use self::session::RabbitTag;
pub use self::source::{RabbitSource, RabbitSourceBuilder};
pub use self::topology::{Exchange, Topology};
