//! The PostgreSQL store: a pool, and one statement for each step.
#[cfg(feature = "delay")]
pub(crate) mod delay;
mod dialect;
mod error;
mod inbox;
mod listener;
mod migrate;
mod open;
mod options;
#[cfg(feature = "outbox")]
pub(crate) mod outbox;
mod pooler;
mod session;
mod sql;
mod url;
mod watch;

use std::sync::Arc;

use idempotent_core::StoreError;
use sqlx::Postgres;

use self::dialect::PostgresDialect;
pub use self::options::PostgresStoreBuilder;
use self::session::Session;
use crate::server::{ServerStore, Settings, Target, server_inbox, server_order, server_steps, server_store};

/// Records in a table of a PostgreSQL database: durable, for a fleet. Cheap to clone: clones share the connections. What
/// it uses is there from version 12 on; its tests have run on 15.
///
/// Every step is one statement, and so one round trip, as a rule; a takeover, and a claim of a key that was released
/// before, take two. A key that this process has seen lately is looked at first, so that a duplicate is a read by its
/// key. Nobody waits for anybody, but for a purge that is just removing the same key (some ms): a claim that meets
/// another's is told that the key is [busy](idempotent_core::InFlight::Busy). Transactions of an [`Inbox`](crate::Inbox)
/// have connections of their own, as many again at most. Times are the server's `clock_timestamp()`, to the microsecond.
///
/// A record past its time stays in the table until [`Purge`](idempotent_core::Purge) removes it: call it now and then.
///
/// # Poolers
/// PgBouncer with `pool_mode=session` behaves like the server itself. With `pool_mode=transaction`, PgBouncer must keep prepared
/// statements: use 1.21 or later with `max_prepared_statements=100` or more. [`open`](Self::open) detects the pooling mode over
/// two connections and refuses an unsafe pooler; the error names the remedy. Notifications do not pass through a transaction
/// pooler, so waiting runs poll every 50 ms. Never set `statement-cache-capacity=0`: `open` refuses this setting behind a
/// transaction pooler. Migrate over a direct connection.
///
/// An open asks for two sessions for a moment. If a pooler has only one left, the open waits 5 s for the second and then skips the
/// detection.
///
/// PgBouncer refuses the parameter `extra_float_digits`, which sqlx sends by default; this store does not send that parameter.
/// For a pool of your own, call `PgConnectOptions::extra_float_digits(None)`, or set
/// `ignore_startup_parameters = extra_float_digits` in PgBouncer.
///
/// With the feature `postgres-tls` connections use TLS where the server has it, and are encrypted then, but only
/// `sslmode=verify-full` in the URL makes sure of who it is: by the authorities that the system trusts, and by
/// `sslrootcert=FILE`. A client's certificate is `sslcert=FILE&sslkey=FILE`.
///
/// Capabilities: batch, watch, browse, purge, admin, inspect, steps, order, transact.
///
/// ```no_run
/// use idempotent_sqlx::PostgresStore;
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// // Makes its table where that is missing.
/// let store = PostgresStore::builder("postgres://app:secret@db.internal/shop").create(true).open().await?;
///
/// // Here that would be an error: migrations are somebody else's job.
/// let store = PostgresStore::open("postgres://app:secret@db.internal/shop").await?;
/// # let _ = store;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct PostgresStore(Arc<ServerStore<PostgresDialect>>);

impl PostgresStore {
    /// The builder of the store for renewals, which watches nothing.
    fn again(&self) -> PostgresStoreBuilder {
        PostgresStoreBuilder(self.0.dialect.settings.again(), Session { listening: false, is_known: true })
    }

    /// Connects. The table has to be there: [`create`](PostgresStoreBuilder::create) makes it.
    ///
    /// # Errors
    /// As [`PostgresStoreBuilder::open`].
    ///
    /// # Cancellation
    /// As [`PostgresStoreBuilder::open`].
    pub async fn open(url: impl Into<String>) -> Result<Self, StoreError> {
        Self::builder(url).open().await
    }

    /// To set the table, the connections, limits of time or a clock.
    pub fn builder(url: impl Into<String>) -> PostgresStoreBuilder {
        PostgresStoreBuilder(Settings::new(Target::Url(url.into())), Session::NEW)
    }

    /// On a pool that is there already. Its connections are taken as they are; keep its `acquire_timeout` short.
    pub fn on_pool(pool: sqlx::PgPool) -> PostgresStoreBuilder {
        PostgresStoreBuilder(Settings::new(Target::Pool(pool)), Session::NEW)
    }
}

server_store!(PostgresStore, with_steps, with_order, with_transact; with_watch if |store| store.0.dialect.listener.is_some());
server_steps!(PostgresStore);
server_order!(PostgresStore);
server_inbox!(
    PostgresStore,
    Postgres,
    pool: "PgPool",
    "Meanwhile others are told at once that it is busy, and so is this claim where another's transaction holds it."
);
