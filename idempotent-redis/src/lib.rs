//! Redis and Valkey store of `idempotent-rs`.
mod access;
mod answer;
mod batch;
mod browse;
mod builder;
mod cache;
mod call;
mod check;
mod checkup;
mod failure;
mod hub;
mod info;
mod lane;
mod link;
mod reach;
mod record;
mod rights;
mod script;
mod startup;
mod store;
mod tls;
mod topology;
mod turn;
mod url;
mod watch;

pub use self::builder::RedisStoreBuilder;
pub use self::cache::CacheOptions;
pub use self::checkup::{Checkup, Finding, Severity};
pub use self::store::RedisStore;
#[doc(hidden)]
pub use self::url::__wrong_part;
