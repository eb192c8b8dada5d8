//! Redis and Valkey store of `idempotent-rs`.
//!
//! [`RedisStore`] keeps idempotency records on one server, with Redis Sentinel, or in a Redis Cluster. [`RedisTier`]
//! caches the results of another store. The feature `delay-queue` adds `DelayQueue`, a queue for delayed messages.
#![cfg_attr(docsrs, feature(doc_cfg))]
mod batching;
mod cache;
mod connection;
#[cfg(feature = "delay-queue")]
mod delay_queue;
mod durability;
mod failure;
mod record;
mod scripts;
mod startup;
mod store;
mod topology;

use std::sync::{Mutex, MutexGuard, PoisonError};

pub use self::cache::CacheOptions;
pub use self::connection::url::InvalidUrl;
#[cfg(feature = "delay-queue")]
pub use self::delay_queue::{
    CommitAndReceive, DelayCounts, DelayDeadLetters, DelayDelivery, DelayMessage, DelayProducer, DelayQueue,
    DelayQueueBuilder, DelayReceiver, DelaySource, DelayTag, RetryDelay, RollbackResult, SendReceipt, Server,
    SettleResult,
};
pub use self::durability::{Durability, RedisCounts};
pub use self::store::RedisStore;
pub use self::store::builder::RedisStoreBuilder;
pub use self::store::memory::RedisMemory;
pub use self::store::tier::RedisTier;

/// Locks a mutex of this crate. The code under these locks does not panic, so the data is consistent even if a lock is poisoned.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The parts that the benchmarks measure alone.
#[doc(hidden)]
pub mod __private {
    pub use crate::cache::compact::{CompactEntry, CompactTable};
}
