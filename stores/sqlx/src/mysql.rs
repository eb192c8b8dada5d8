//! The MariaDB and MySQL store: a connection pool, and one statement for each operation.
mod dialect;
mod error;
mod health;
mod inbox;
pub(crate) mod migrate;
mod open;
mod options;
mod server_version;
mod sql;
mod steps;
mod url;

use std::sync::Arc;

use idempotent_core::StoreError;
use sqlx::MySql;

pub(crate) use self::dialect::MySqlDialect;
pub use self::options::MySqlStoreBuilder;
use crate::server::{
    ServerSettings, ServerStore, ServerTarget, server_inbox, server_order, server_steps, server_store,
};

/// A store of records in a table of a MariaDB or MySQL database, durable and shared by many processes. Clones share the
/// connections. The store supports MariaDB 10.5 and newer, and MySQL 8.0 and newer. Its tests run on MariaDB 10.11 and 11.8, and on
/// MySQL 9.7.
///
/// On MariaDB, an operation usually is one statement in one round trip. A claim of an existing key takes two round trips, and a
/// takeover three. The store reads a recently claimed key first, so a duplicate is a read by key. On MySQL, which has no
/// `INSERT … RETURNING`, a claim takes two round trips. A claim that meets another open transaction returns
/// [busy](idempotent_core::InFlight::Busy) at once. On MySQL, two first claims of a key at the same moment are an exception: one of them
/// waits for the other's transaction for a second, the shortest lock timeout there. On a pool of yours, that is the
/// `innodb_lock_wait_timeout` of its sessions. Times are the server's `UTC_TIMESTAMP(6)`.
///
/// An expired record stays in the table for at least one minute, until [`Purge`](idempotent_core::Purge) removes the record.
/// Call it periodically.
///
/// The connections of the store run in READ COMMITTED. Transactions of an [`Inbox`](crate::Inbox) use separate connections, at most the
/// same number, on which a handler's statements wait for locks as the server is configured. A result must fit into one packet: the
/// server's `max_allowed_packet`, usually 16 MiB. The store refuses a larger result before it is sent.
///
/// A result that a full disk has no room for is left out, since the effect of its run is done. The store then refuses new claims
/// until it has stored the largest such result.
///
/// # Proxies
/// The tests run without a proxy. According to their documentation, two proxies are suitable with these settings, which send all
/// statements of a connection to the primary. A replica that lags does not know the latest claims.
/// - MaxScale: `readconnroute` with `router_options=master`. `readwritesplit` sends lookups to replicas.
/// - ProxySQL: no query rule that sends reads of this user to another hostgroup, and `multiplex=0` for this user, because the store
///   sets variables of its session.
///
/// # TLS
/// With the feature `mysql-tls`, connections use TLS if the server supports it. Only `ssl-mode=VERIFY_IDENTITY` in the URL verifies the
/// identity of the server, by the authorities that the system trusts and by `ssl-ca=FILE`. A client certificate is
/// `ssl-cert=FILE&ssl-key=FILE`.
///
/// MySQL 8 and later need this feature for users with a password: their default login, `caching_sha2_password`, sends the password only
/// by TLS. Without TLS, a login works only while the server remembers an earlier one of the same user by TLS. This includes Unix sockets,
/// where such a server refuses the right password.
///
/// # Failovers
/// If the server takes no writes any more, the store closes its connections, so that the next ones follow the address. On a pool of
/// yours, the store closes the connection and the idle ones.
///
/// Capabilities: batch, search, purge, admin, inspect, steps, order, transact, health. The subjects of the health check are `rights`,
/// `durability`, `isolation`, `engine`, `connections`, `space` and `purge`.
///
/// ```no_run
/// use idempotent_sqlx::MySqlStore;
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// // Creates a missing table.
/// let store = MySqlStore::builder("mysql://app:secret@db.internal/shop").create(true).connect().await?;
///
/// // Returns an error if the table is missing, for services with separate migrations.
/// let store = MySqlStore::connect("mariadb://app:secret@db.internal/shop").await?;
/// # let _ = store;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct MySqlStore(Arc<ServerStore<MySqlDialect>>);

impl MySqlStore {
    /// Returns the builder of the store for renewals.
    fn again(&self) -> MySqlStoreBuilder {
        let (settings, as_on_mysql) = &self.0.dialect.opened_with;
        MySqlStoreBuilder(settings.again(), *as_on_mysql)
    }

    /// Connects to an existing table. To create the table, use [`create`](MySqlStoreBuilder::create).
    ///
    /// # Errors
    /// The same as [`MySqlStoreBuilder::connect`].
    ///
    /// # Cancellation
    /// The same as [`MySqlStoreBuilder::connect`].
    pub async fn connect(url: impl Into<String>) -> Result<Self, StoreError> {
        Self::builder(url).connect().await
    }

    /// Returns a builder to set the table, connections, timeouts or a clock.
    pub fn builder(url: impl Into<String>) -> MySqlStoreBuilder {
        MySqlStoreBuilder::new(ServerSettings::new(ServerTarget::Url(url.into())))
    }

    /// Returns a builder for a store on an existing pool. The store does not change settings of the pool's connections, such as
    /// the isolation level. Keep the `acquire_timeout` of the pool short.
    pub fn on_pool(pool: sqlx::MySqlPool) -> MySqlStoreBuilder {
        MySqlStoreBuilder::new(ServerSettings::new(ServerTarget::Pool(pool)))
    }
}

server_store!(MySqlStore, with_steps, with_order, with_browse_order, with_transact);
server_steps!(MySqlStore);
server_order!(MySqlStore);
server_inbox!(
    MySqlStore,
    MySql,
    MySqlDialect,
    pool: "MySqlPool",
    "Meanwhile others are told at once that it is busy, and so is this claim where another's transaction holds it: that goes \
     on, whatever the server's wait for locks is. (On MySQL a claim that meets another in the very same instant may wait for \
     that transaction.) Whatever the answer, the record is locked until this transaction ends, so that its owner can neither \
     renew nor settle it: do not keep one open whose claim was not granted. Above READ COMMITTED the gaps beside it are, too."
);
