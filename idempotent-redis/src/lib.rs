//! Redis and Valkey store of `idempotent-rs`.
mod answer;
mod batch;
mod browse;
mod builder;
mod cache;
mod call;
mod failure;
mod hub;
mod lane;
mod link;
mod record;
mod script;
mod store;
mod topology;
mod turn;
mod watch;
mod watchdog;

pub use self::builder::RedisStoreBuilder;
pub use self::cache::CacheOptions;
pub use self::store::RedisStore;
