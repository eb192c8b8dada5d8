//! The PostgreSQL store: a connection pool, and one statement for each operation.
mod dialect;
mod effect_statement;
mod error;
mod health;
mod inbox;
mod joined_claim;
mod listener;
pub(crate) mod migrate;
mod open;
mod options;
mod partitions;
mod pooler;
mod sql;
mod url;
mod watch;

use std::sync::Arc;

use idempotent_core::StoreError;
use sqlx::Postgres;

pub(crate) use self::dialect::PostgresDialect;
use self::open::Session;
pub use self::options::PostgresStoreBuilder;
use crate::server::{
    ServerSettings, ServerStore, ServerTarget, server_inbox, server_order, server_steps, server_store,
};

/// A store of records in a table of a PostgreSQL database, durable and shared by many processes. Clones share the connections.
/// The store needs PostgreSQL 12 or newer; its tests run on version 15.
///
/// An operation usually is one statement in one round trip. A takeover, and a claim of a released key, take two. The store reads
/// a recently claimed key first, so a duplicate is a read by key. Claims never wait for each other: a claim that meets a
/// concurrent claim returns [busy](idempotent_core::InFlight::Busy). A claim may wait some ms for a purge of the same key.
/// Transactions of an [`Inbox`](crate::Inbox) use separate connections, at most the same number. Times are the server's
/// `clock_timestamp()`, in microseconds.
///
/// An expired record stays in the table until [`Purge`](idempotent_core::Purge) removes the record. Call it periodically.
///
/// A result that a full disk has no room for is left out, since the effect of its run is done. The store then refuses new claims
/// until it has stored the largest such result.
///
/// From about 100 million records on, [`partitions`](PostgresStoreBuilder::partitions) divides the tables, so that several vacuums
/// work at the same time.
///
/// # Poolers
/// PgBouncer with `pool_mode=session` behaves like the server itself. With `pool_mode=transaction`, PgBouncer must keep prepared
/// statements. 1.24 and later do so by default; 1.21 to 1.23 need `max_prepared_statements=100` or more.
/// [`connect`](Self::connect) detects the pooling mode over two connections and refuses an unsafe pooler; the error names the
/// remedy. Notifications do not pass through a transaction pooler, so waiting runs poll every 50 ms. Never set
/// `statement-cache-capacity=0`: `connect` refuses this setting with a transaction pooler. Migrate over a direct connection.
///
/// An open asks for two sessions for a moment. If a pooler has only one left, the open waits 5 s for the second and then skips the
/// detection.
///
/// PgBouncer refuses the parameter `extra_float_digits`, which sqlx sends by default; this store does not send that parameter.
/// For a pool of your own, call `PgConnectOptions::extra_float_digits(None)`, or set
/// `ignore_startup_parameters = extra_float_digits` in PgBouncer.
///
/// With the feature `postgres-tls`, connections use TLS if the server supports it. Only `sslmode=verify-full` in the URL verifies the
/// identity of the server, by the authorities that the system trusts and by `sslrootcert=FILE`. A client certificate is
/// `sslcert=FILE&sslkey=FILE`.
///
/// Capabilities: batch, watch, search, purge, admin, inspect, steps, order, transact, health. The subjects of the health check are
/// `rights`, `pooler`, `version`, `durability`, `isolation`, `indexes`, `bloat`, `connections`, `space` and `purge`.
///
/// ```no_run
/// use idempotent_sqlx::PostgresStore;
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// // Creates a missing table.
/// let store = PostgresStore::builder("postgres://app:secret@db.internal/shop").create(true).connect().await?;
///
/// // Returns an error if the table is missing, for services with separate migrations.
/// let store = PostgresStore::connect("postgres://app:secret@db.internal/shop").await?;
/// # let _ = store;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct PostgresStore(Arc<ServerStore<PostgresDialect>>);

impl PostgresStore {
    /// Returns the builder of the store for renewals, which receives no notifications.
    fn again(&self) -> PostgresStoreBuilder {
        PostgresStoreBuilder(self.0.dialect.settings.again(), Session { listening: false, is_known: true })
    }

    /// Connects to an existing table. To create the table, use [`create`](PostgresStoreBuilder::create).
    ///
    /// # Errors
    /// The same as [`PostgresStoreBuilder::connect`].
    ///
    /// # Cancellation
    /// The same as [`PostgresStoreBuilder::connect`].
    pub async fn connect(url: impl Into<String>) -> Result<Self, StoreError> {
        Self::builder(url).connect().await
    }

    /// Returns a builder to set the table, connections, timeouts or a clock.
    pub fn builder(url: impl Into<String>) -> PostgresStoreBuilder {
        PostgresStoreBuilder(ServerSettings::new(ServerTarget::Url(url.into())), Session::NEW)
    }

    /// Returns a builder for a store on an existing pool. The store does not change settings of the pool's connections. Keep the
    /// `acquire_timeout` of the pool short.
    pub fn on_pool(pool: sqlx::PgPool) -> PostgresStoreBuilder {
        PostgresStoreBuilder(ServerSettings::new(ServerTarget::Pool(pool)), Session::NEW)
    }
}

server_store!(PostgresStore, with_steps, with_order, with_browse_order, with_transact; with_watch if |store| store.0.dialect.listener.is_some());
server_steps!(PostgresStore);
server_order!(PostgresStore);
server_inbox!(
    PostgresStore,
    Postgres,
    PostgresDialect,
    pool: "PgPool",
    "Until then, other claims of the key return busy at once, as this claim does if another transaction holds the key."
);
