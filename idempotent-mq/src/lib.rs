//! Consumer runtime of [`idempotent`](https://docs.rs/idempotent-rs): from delivery to settlement, for any broker.
//!
//! A [`Source`] brings deliveries; [`Messages`] say how they are read, by what they are told apart and who handles them;
//! a [`Consumer`] claims each key, runs the handler unless the delivery is a duplicate, and settles the delivery by what
//! the run came to. It knows no broker: adapters are crates of their own, and [`docs::source`] says how to write one.
//!
//! ```
//! use std::time::Duration;
//!
//! use idempotent_core::{Executor, MemoryStore};
//! use idempotent_mq::{Consumer, Delivery, KeyFrom, Message, Messages, Position, Schedule};
//! # use std::sync::{Arc, Mutex};
//! # use async_trait::async_trait;
//! # use idempotent_mq::{SourceCapabilities, DeadLetter, DelaySupport, Received, Settle, Settlement, Source, SourceError, SourceErrorKind};
//! # use tokio::sync::mpsc;
//! # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/docs/queue.rs"));
//!
//! #[derive(serde::Deserialize)]
//! struct Order {
//!     number: u64,
//!     cents: u64,
//! }
//!
//! // Any error will do: its message comes again.
//! async fn charge(message: Message<Order>) -> Result<(), &'static str> {
//!     match message.body.cents {
//!         0 => Err("nothing to charge"),
//!         _ => Ok(()),
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // A queue in memory, as in `docs::source`; in earnest the source of a broker's adapter.
//! let (queue, source) = queue();
//! let executor = Executor::new(MemoryStore::new());
//! let handling = Messages::json().keyed(KeyFrom::body("order.number", |order: &Order| order.number)).run(charge);
//! let consumer = Consumer::builder(source, "billing", &executor)
//!     .schedule(Schedule::exponential(Duration::from_millis(1), Duration::from_millis(10)))
//!     .build(handling)?;
//! for body in ["{\"number\": 1, \"cents\": 5}", "{\"number\": 1, \"cents\": 5}", "{\"number\": 2, \"cents\": 0}", "what?"] {
//!     queue.messages.send(Delivery::new(Position::of("orders"), body.into()))?;
//! }
//! let stop = tokio::time::sleep(Duration::from_millis(500)); // on SIGTERM, in earnest
//! let counts = consumer.run(stop).await?;
//! // The first order, and its duplicate without a second run; the second one failed 17 times; the last is no order.
//! assert_eq!((counts.acked, counts.retried, counts.dead_lettered), (2, 16, 2));
//! assert_eq!(executor.counts().of("ran"), 1);
//! let aside = queue.aside.lock().unwrap();
//! assert_eq!(aside[0].0.body, b"what?"); // at once, byte for byte
//! assert!(aside[1].1.reason.starts_with("given up after 17 runs"));
//! # Ok(())
//! # }
//! ```
//!
//! What it promises is what the executor's store does (level L1, and L2 or L4 with the handler's help). To that it adds:
//!
//! - **Settled by outcome.** What a run came to decides, not what the error it returned looks like. After a good run the
//!   returned value counts as well: code behind it may have failed.
//! - **Release first, then requeue.** A key is free before the broker is told to deliver again. A dead letter is
//!   confirmed before its original is acknowledged. A duplicate of what is done is always acknowledged.
//! - **Deferrals are no attempts.** What is in flight elsewhere, or finds the store down, comes again and costs nothing.
//! - **Attempts are counted at the claim**, so a message that kills its process is put aside, too. The broker's own count
//!   is the second witness ([`max_deliveries`](ConsumerBuilder::max_deliveries)).
//! - **While the store is down** no deliveries are taken; a peek says when it is back, and one delivery tries.
//! - **Nothing is acknowledged for want of something better**: what cannot be settled is left to the broker. What the
//!   broker refuses for good is given back, and ends the consumer with that error.
//! - **One terminal count for each delivery** ([`ConsumerCounts`]); logs by `tracing`, without ids, keys or bodies.
//!
//! | a run came to | the delivery |
//! |---|---|
//! | `ran`, `replayed`, `unprotected` | as the handler's return value says: acknowledged, again (an attempt), dead letter |
//! | `consumed_without_result`, `duplicate` | acknowledged |
//! | `released` | again after the [`Schedule`], or else the executor's hint: an attempt |
//! | `in_flight`, `delayed`, `draining` | again after the hint; `in_flight` is acknowledged where the policy says so and the [`MessageLog`] says that the message is resent |
//! | `store_down`, `no_executor`, `misconfigured`, `cancelled` | again after 1 s, or when the store may be back |
//! | `lease_lost`, `unrecorded`, `abandoned` | again after 1 s: an attempt |
//! | `failed`, `mismatch`, `bad_key`, `nested` | dead letter |
//! | `dead` | dead letter, with an id that its copies share |
//! | no run at all | as the handler's return value says; counted as [`unprotected`](ConsumerCounts::unprotected) |
//!
//! Dead letters are put back by [`Redrive`].
//!
//! Without a run: a body that cannot be read, or a missing ordering key, is a dead letter; one past its own time is
//! acknowledged, and counted as [`expired`](ConsumerCounts::expired).
mod answer;
mod breaker;
mod builder;
mod capabilities;
mod consumer;
mod counts;
mod decide;
mod decode;
mod delay;
mod delivery;
pub mod docs;
mod error;
mod headers;
mod key;
mod lanes;
mod log;
mod message;
mod messages;
mod position;
mod postponed;
mod publish;
mod redrive;
mod schedule;
mod settlement;
mod source;
mod time;
mod work;

pub use self::answer::{HandlerResult, IntoHandlerResult};
pub use self::builder::ConsumerBuilder;
pub use self::capabilities::{DelaySupport, SourceCapabilities};
pub use self::consumer::Consumer;
pub use self::counts::{ConsumerCounters, ConsumerCounts};
pub use self::decode::Decode;
pub use self::delay::{Cancelled, Delay, DelayError, DelayErrorKind, Scheduled};
pub use self::delivery::Delivery;
pub use self::error::{SetupError, SourceError, SourceErrorKind, Undecodable};
pub use self::headers::Headers;
pub use self::key::KeyFrom;
pub use self::log::{DeliveryResult, LogError, LogErrorKind, LoggedDelivery, MessageLog, OUTBOX_HEADER, SenderState};
pub use self::message::Message;
pub use self::messages::{KeyedMessages, MessageHandler, Messages};
pub use self::position::Position;
pub use self::publish::{OutboundMessage, Publish, PublishError, PublishErrorKind, Published, chains, publish_each};
pub use self::redrive::{DeadLetters, Redrive, RedriveSummary};
pub use self::schedule::Schedule;
pub use self::settlement::{DeadLetter, Retry, Settlement};
pub use self::source::{Received, Settle, Source};
pub use self::work::service;
