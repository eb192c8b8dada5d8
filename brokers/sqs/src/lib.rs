//! Amazon SQS for the consumer runtime [`idempotent_mq`].
//!
//! [`SqsSource`] is a [`Source`](idempotent_mq::Source) that receives messages of a standard or FIFO queue by long polls.
//! [`SqsPublisher`] implements [`Publish`](idempotent_mq::Publish). [`SqsDeadLetters`] lists dead letters and puts them back.
//!
//! Each of them takes a configured [`Client`](aws_sdk_sqs::Client), so the SDK sets credentials, region, endpoint and TLS.
//!
//! ```no_run
//! use std::time::Duration;
//!
//! use aws_sdk_sqs::Client;
//! use idempotent_core::{Executor, MemoryStore};
//! use idempotent_mq::{Consumer, KeyFrom, Message, Messages};
//! use idempotent_sqs::SqsSource;
//!
//! #[derive(serde::Deserialize)]
//! struct Order {
//!     number: u64,
//!     cents: u64,
//! }
//!
//! async fn charge(message: Message<Order>) -> Result<(), &'static str> {
//!     match message.body.cents {
//!         0 => Err("nothing to charge"), // retried 16 times, then moved to the queue `orders-dead`
//!         _ => Ok(()),
//!     }
//! }
//!
//! // The client of the SDK, such as `Client::new(&aws_config::load_from_env().await)`.
//! async fn consume(client: Client) -> Result<(), Box<dyn std::error::Error>> {
//!     // aws sqs send-message --queue-url … --message-body '{"number": 1, "cents": 5}'
//!     let source = SqsSource::builder(client, "orders")
//!         .declare()
//!         .visibility_timeout(Duration::from_secs(30))
//!         .connect()
//!         .await?;
//!     // Several processes need a store that they share.
//!     let executor = Executor::new(MemoryStore::new());
//!     let handling = Messages::json().keyed(KeyFrom::body("order.number", |order: &Order| order.number)).run(charge);
//!     let consumer = Consumer::builder(source, "billing", &executor).build(handling)?;
//!     let counts = consumer.run(async { drop(tokio::signal::ctrl_c().await) }).await?;
//!     println!("{counts:?}");
//!     Ok(())
//! }
//! ```
#![doc = include_str!("docs/sqs.md")]
#![doc = include_str!("docs/limits.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]
mod acks;
mod address;
mod body;
mod builder;
mod carrier;
mod client;
mod dead_letters;
mod error;
mod fifo;
mod message;
mod polls;
mod publisher;
mod queue;
mod retry_marks;
mod settler;
mod setup;
mod source;

pub use aws_sdk_sqs;

pub use self::builder::SqsSourceBuilder;
pub use self::client::{URL_FORM, client};
pub use self::dead_letters::SqsDeadLetters;
pub use self::fifo::message_group;
pub use self::message::SqsTag;
pub use self::publisher::SqsPublisher;
pub use self::source::SqsSource;
