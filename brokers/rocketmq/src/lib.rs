//! RocketMQ for the consumer runtime [`idempotent_mq`].
//!
//! [`RocketSource`] is a [`Source`](idempotent_mq::Source) that consumes a topic as a member of a group.
//! [`RocketPublisher`] implements [`Publish`](idempotent_mq::Publish) and reports the known state of each message.
//! [`RocketDeadLetters`] implements [`DeadLetters`](idempotent_mq::DeadLetters): it lists, redrives and removes dead letters.
//! [`RocketDelay`] implements [`Delay`](idempotent_mq::Delay) by the delay levels of the broker.
//!
//! ```no_run
//! use idempotent_core::{Executor, MemoryStore};
//! use idempotent_mq::{Consumer, MessageHandler};
//! use idempotent_rocketmq::RocketSource;
//!
//! /// Consumes with a handler, such as `Messages::json().annotated(charge)` for a function with the attribute.
//! async fn consume(handler: MessageHandler) -> Result<(), Box<dyn std::error::Error>> {
//!     let source = RocketSource::builder("rocketmq://localhost", "orders", "billing").build()?;
//!     source.declare(4).await?; // unless the topic exists
//!     // Several processes need a store that they share.
//!     let executor = Executor::new(MemoryStore::new());
//!     let consumer = Consumer::builder(source, "billing", &executor).build(handler)?;
//!     println!("{:?}", consumer.run(async { drop(tokio::signal::ctrl_c().await) }).await?);
//!     Ok(())
//! }
//! ```
#![doc = include_str!("docs/broker.md")]
#![doc = include_str!("docs/limits.md")]
// The client's futures are deeply nested.
#![recursion_limit = "512"]
#![cfg_attr(docsrs, feature(doc_cfg))]
mod access;
mod body;
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
mod name_servers;
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
