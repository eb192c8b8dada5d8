//! The decision table of the HTTP adapters. Each adapter serves the [`Shop`] over a socket, and each [`Row`] checks it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a failed check is a panic of its test")]
mod patience;
mod raw_client;
mod row;
mod shop;
mod table;

pub use self::patience::{PATIENCE, soon, until};
pub use self::raw_client::{Answer, Ask, Client};
pub use self::row::{Expected, Row, Step};
pub use self::shop::{Reply, Shop};
pub use self::table::{by_user, table};
