//! Consumer-side idempotency: one attribute makes a message or REST handler safe against duplicates.
mod connect;
pub mod docs;

pub use self::connect::{ConnectError, connect};
#[doc(hidden)]
pub use idempotent_core::__private;
pub use idempotent_core::*;
#[cfg(feature = "macros")]
pub use idempotent_macros::idempotent;
#[cfg(feature = "sqlite")]
pub use idempotent_sqlx::{SqliteStore, SqliteStoreBuilder, Synchronous};
