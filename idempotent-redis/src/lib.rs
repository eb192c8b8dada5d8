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
mod cluster;
#[cfg(feature = "delay-queue")]
mod delay;
mod durability;
mod failure;
mod flight;
mod hub;
mod info;
mod journal;
mod lane;
mod link;
mod order;
mod race;
mod reach;
mod record;
mod replicated;
mod rights;
mod script;
mod sentinel;
mod startup;
mod store;
mod tier;
mod tls;
mod topology;
mod turn;
mod url;
mod watch;
mod watchdog;

pub use self::builder::RedisStoreBuilder;
pub use self::cache::CacheOptions;
pub use self::checkup::{Checkup, Finding, Severity};
#[cfg(feature = "delay-queue")]
pub use self::delay::{
    Back, Closing, DelayCounts, DelayDeadLetters, DelayMessage, DelayProducer, DelayQueue, DelayQueueBuilder,
    DelaySource, DelayTag, Next, RolledBack, Sent, Taken, Taker,
};
pub use self::durability::{Durability, RedisCounts};
pub use self::store::RedisStore;
pub use self::tier::RedisTier;
#[doc(hidden)]
pub use self::url::__wrong_part;
