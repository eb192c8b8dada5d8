//! Consumer runtime of [`idempotent`](https://docs.rs/idempotent-rs): from delivery to settlement, for any broker.
//!
//! A [`Source`] receives deliveries. [`Messages`] sets how they are decoded, their key and their handler. A [`Consumer`] claims each
//! key, runs the handler unless the delivery is a duplicate, and settles the delivery by the outcome of its run. The runtime knows no
//! broker: adapters are separate crates, and the guide [`docs::source`] shows how to write one.
//!
//! ```
//! use std::time::Duration;
//!
//! use idempotent_core::{Executor, MemoryStore};
//! use idempotent_macros::idempotent;
//! use idempotent_mq::{Consumer, MemoryQueue, Message, Messages, Schedule};
//!
//! #[derive(serde::Deserialize)]
//! struct Order {
//!     number: u64,
//!     cents: u64,
//! }
//!
//! // After any error, the message is retried.
//! #[idempotent(scene = mq, scope = "charge", key = message.body.number
//! # , crate = idempotent_core
//! )]
//! async fn charge(message: Message<Order>) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
//!     match message.body.cents {
//!         0 => Err("nothing to charge".into()),
//!         _ => Ok(()),
//!     }
//! }
//!
//! #[tokio::main(flavor = "current_thread")]
//! async fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     // A service uses the source of an adapter.
//!     let queue = MemoryQueue::new("orders");
//!     for body in [r#"{"number": 1, "cents": 5}"#, r#"{"number": 1, "cents": 5}"#, r#"{"number": 2, "cents": 0}"#, "what?"] {
//!         queue.send(body);
//!     }
//!     let executor = Executor::new(MemoryStore::new());
//!     let consumer = Consumer::builder(queue.source(), "billing", &executor)
//!         .schedule(Schedule::exponential(Duration::from_millis(1), Duration::from_millis(10)))
//!         .build(Messages::json().annotated(charge))?;
//!     let counts = consumer.run(queue.drained()).await?; // a service stops at SIGTERM
//!     // The first order and its duplicate are acknowledged after one run. The second order failed 17 times. The last body is
//!     // invalid.
//!     assert_eq!((counts.acked, counts.retried, counts.dead_lettered), (2, 16, 2));
//!     assert_eq!(executor.counts().of("ran"), 1);
//!     let dead = queue.dead_letters();
//!     assert_eq!(dead[0].0.body, b"what?"); // without a run, byte for byte
//!     assert!(dead[1].1.reason.starts_with("given up after 17 runs"));
//!     Ok(())
//! }
//! ```
//!
//! The executor's store provides the guarantees (level L1, and L2 or L4 with the handler's help). The consumer adds:
//!
//! - **Settlement by outcome.** The outcome of the run decides, not the error that the handler returned. After a successful run, the
//!   returned value counts as well, because code around the run may have failed.
//! - **Release before requeue.** A key is free before the broker delivers its message again. A dead letter is confirmed before its
//!   original is acknowledged. A duplicate of a consumed message is always acknowledged.
//! - **Deferrals are not attempts.** A message that is in flight elsewhere, or that finds the store down, is retried without using up
//!   an attempt.
//! - **Attempts are counted at the claim**, so a message that kills its process is dead-lettered as well. The broker's own count is a
//!   second limit ([`max_deliveries`](ConsumerBuilder::max_deliveries)).
//! - **No intake while the store is down.** A peek detects that the store is back, and one trial delivery confirms it.
//! - **No acknowledgement without a result.** A delivery that cannot be settled stays with the broker. If the broker refuses a
//!   settlement permanently, the consumer gives the delivery back and stops with that error.
//! - **One terminal count for each delivery** ([`ConsumerCounts`]), and logs by `tracing` without ids, keys or bodies.
//!
//! | outcome of the run | settlement |
//! |---|---|
//! | `ran`, `replayed`, `unprotected` | by the handler's result: acknowledged, retried (an attempt), or dead-lettered |
//! | `consumed_without_result`, `duplicate` | acknowledged |
//! | `released` | retried after the [`Schedule`], or after the executor's hint: an attempt |
//! | `in_flight`, `delayed`, `draining` | retried after the hint. `in_flight` is acknowledged if the policy permits it and the [`MessageLog`] reports that the sender resends the message |
//! | `store_down`, `no_executor`, `misconfigured`, `cancelled` | retried after 1 s, or when the store may be back |
//! | `lease_lost`, `unrecorded`, `abandoned` | retried after 1 s: an attempt |
//! | `failed`, `mismatch`, `bad_key`, `nested` | dead-lettered |
//! | `dead` | dead-lettered, with an id that copies share |
//! | no run | by the handler's result, and counted as [`unprotected`](ConsumerCounts::unprotected) |
//!
//! [`Redrive`] puts dead letters back into their queue.
//!
//! Some deliveries are settled without a run. A body that cannot be decoded, or a missing ordering key, is a dead letter. An expired
//! message is acknowledged and counted as [`expired`](ConsumerCounts::expired). A message that the [`MessageLog`] knows to be consumed
//! or void is acknowledged and counted as [`skipped`](ConsumerCounts::skipped).
#![cfg_attr(docsrs, feature(doc_cfg))]
mod connection_url;
mod consumer;
mod dead_letters;
mod delay;
pub mod docs;
mod envelope;
mod error;
mod handler;
mod letter_box;
mod memory_queue;
mod message;
mod message_log;
mod publish;
mod redrive;
mod schedule;
mod source;
mod time;

pub use self::connection_url::{ConnectionUrl, Server, ServerUrl, UrlError, UrlForm, UrlParameter};
pub use self::consumer::{
    Consumer, ConsumerBuilder, ConsumerCounters, ConsumerCounts, ConsumerGauges, ConsumerSettings, DeliveryObserver,
    SettledDelivery, StartedDelivery,
};
pub use self::dead_letters::{ContentIds, DeadLetters, LetterId, StoredLetter};
pub use self::delay::{Cancelled, Delay, DelayError, DelayErrorKind, Scheduled};
pub use self::envelope::{Datum, Envelope, Field, MessagePlace};
pub use self::error::{SetupError, SourceError, SourceErrorKind, Undecodable};
pub use self::handler::{Decode, HandlerResult, IntoHandlerResult, KeyedMessages, MessageHandler, Messages, service};
pub use self::letter_box::LetterBox;
pub use self::memory_queue::{MemoryDeadLetters, MemoryQueue, MemorySource, MemoryTag};
pub use self::message::{Delivery, Headers, KeyFrom, Message, Position, TRACE_HEADERS};
pub use self::message_log::{
    DeliveryResult, LogError, LogErrorKind, LoggedDelivery, MessageLog, OUTBOX_HEADER, SenderState,
};
pub use self::publish::{OutboundMessage, Publish, PublishError, PublishErrorKind, Published, chains, publish_each};
pub use self::redrive::{Redrive, RedriveResult, RedriveStep, RedriveSummary};
pub use self::schedule::Schedule;
pub use self::source::{DeadLetter, DelaySupport, Received, Retry, Settle, Settlement, Source, SourceCapabilities};
