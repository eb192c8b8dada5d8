//! Stores, their settings, and everything that a custom store needs. The guide is
//! [`docs::custom_stores`](crate::docs::custom_stores).
pub use idempotent_core::store::*;
pub use idempotent_core::{
    Claim, ClaimHandle, ClaimRequest, Clock, Completion, Consumed, Dead, Entropy, EntropyError, FencingToken, Grant,
    GrantTerms, InFlight, OnExpiry, OsEntropy, OwnerToken, Record, Release, ReleaseKind, Settled, State, StateKind,
    StoreError, StoreErrorKind, SystemClock, Timer, Timestamp, protocol,
};
#[cfg(feature = "redis")]
pub use idempotent_redis::{
    CacheOptions, Durability, InvalidUrl, RedisCounts, RedisMemory, RedisStore, RedisStoreBuilder, RedisTier,
};
#[cfg(feature = "mysql")]
pub use idempotent_sqlx::{MySqlStore, MySqlStoreBuilder};
#[cfg(feature = "postgres")]
pub use idempotent_sqlx::{PostgresStore, PostgresStoreBuilder};
#[cfg(any(feature = "mysql", feature = "postgres", feature = "sqlite"))]
pub use idempotent_sqlx::{SchemaProblem, SchemaProblemKind, SchemaStatus, SchemaStep};
#[cfg(feature = "sqlite")]
pub use idempotent_sqlx::{SqliteStore, SqliteStoreBuilder, SqliteTier, Synchronous};
