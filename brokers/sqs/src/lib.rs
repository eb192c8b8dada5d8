//! Amazon SQS for the consumer runtime [`idempotent_mq`].
//!
//! [`SqsSource`] is a [`Source`](idempotent_mq::Source) that receives messages of a standard or FIFO queue by long polls.
//! [`SqsPublisher`] implements [`Publish`](idempotent_mq::Publish). [`SqsDeadLetters`] lists dead letters and puts them back.
//!
//! Each of them takes a configured [`Client`](aws_sdk_sqs::Client), so the SDK sets credentials, region, endpoint and TLS.
//!
//! ```no_run
//! use idempotent_core::{Executor, MemoryStore};
//! use idempotent_mq::{Consumer, MessageHandler};
//! use idempotent_sqs::SqsSource;
//!
//! /// Consumes with a handler, such as `Messages::json().annotated(charge)` for a function with the attribute.
//! async fn consume(client: aws_sdk_sqs::Client, handler: MessageHandler) -> Result<(), Box<dyn std::error::Error>> {
//!     // The client is that of the SDK, such as `Client::new(&aws_config::load_from_env().await)`.
//!     // aws sqs send-message --queue-url … --message-body '{"number": 1}'
//!     let source = SqsSource::builder(client, "orders").declare().connect().await?;
//!     // Several processes need a store that they share.
//!     let executor = Executor::new(MemoryStore::new());
//!     let consumer = Consumer::builder(source, "billing", &executor).build(handler)?;
//!     println!("{:?}", consumer.run(async { drop(tokio::signal::ctrl_c().await) }).await?);
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
