//! A store for [`idempotent_core`] on Amazon DynamoDB.
//!
//! [`DynamoBackend`] keeps the records of a fleet in one table. [`Cas`](idempotent_core::Cas) turns the backend into a
//! [`Store`](idempotent_core::Store). The backend takes a configured [`Client`](aws_sdk_dynamodb::Client), so the SDK sets credentials,
//! region, endpoint and TLS.
//!
//! ```no_run
//! use aws_sdk_dynamodb::Client;
//! use idempotent_core::{Cas, Executor};
//! use idempotent_dynamodb::DynamoBackend;
//!
//! // The client of the SDK, such as `Client::new(&aws_config::load_from_env().await)`.
//! async fn executor(client: &Client) -> Result<Executor, idempotent_core::StoreError> {
//!     let backend = DynamoBackend::builder(client, "idempotent").create(true).open().await?;
//!     Ok(Executor::new(Cas(backend)))
//! }
//! ```
#![doc = include_str!("docs/dynamodb.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]
mod backend;
mod builder;
mod failure;
mod item;
mod table;
mod wall_clock;

pub use aws_sdk_dynamodb;

pub use self::backend::DynamoBackend;
pub use self::builder::DynamoBackendBuilder;
