//! Common names for a glob import.
//!
//! No name in this module is a name of axum or tokio, so `use axum::{extract::*, *}` works together with this import.
//! Names that exist there are left out: [`Json`](crate::Json), [`State`](crate::store::State). The names of consumers
//! are in `idempotent::mq`.
//!
//! ```
//! use idempotent::prelude::*;
//!
//! # #[cfg(feature = "macros")]
//! #[idempotent(key = order, with = executor)]
//! async fn charge(executor: &Executor, order: &str, cents: u64) -> Result<u64, Rejection> {
//!     Ok(cents)
//! }
//! # let _ = (Executor::new(MemoryStore::new()), Policy::new());
//! ```
#[cfg(feature = "mysql")]
pub use crate::MySqlStore;
#[cfg(feature = "postgres")]
pub use crate::PostgresStore;
#[cfg(feature = "redis")]
pub use crate::RedisStore;
#[cfg(feature = "sqlite")]
pub use crate::SqliteStore;
#[cfg(feature = "macros")]
pub use crate::idempotent;
pub use crate::{Executor, MemoryStore, Outcome, Policy, Rejection, Scene, connect};
#[cfg(feature = "axum")]
pub use crate::{Http, http::WholeRequest};
#[cfg(feature = "tower")]
pub use crate::{
    IdempotencyKey, IdempotencyLayer,
    http::{Caller, Principal},
};
