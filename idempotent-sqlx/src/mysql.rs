//! The MariaDB and MySQL store: a pool, and one statement for each step.
#[cfg(feature = "delay")]
pub(crate) mod delay;
mod dialect;
mod error;
mod inbox;
mod migrate;
mod open;
mod options;
#[cfg(feature = "outbox")]
pub(crate) mod outbox;
mod server_version;
mod sql;
mod steps;
mod url;

use std::sync::Arc;

use idempotent_core::StoreError;
use sqlx::MySql;

use self::dialect::MySqlDialect;
pub use self::options::MySqlStoreBuilder;
use crate::server::{ServerStore, Settings, Target, server_inbox, server_order, server_steps, server_store};

/// Records in a table of a MariaDB or MySQL database: durable, for a fleet. Cheap to clone: clones share the
/// connections. MariaDB 10.5 and newer (its tests run on 10.11) and MySQL 8: its statements for MySQL, which has no
/// `INSERT … RETURNING`, have been run on MariaDB only, **not on a MySQL server**.
///
/// On MariaDB every step is one statement, and so one round trip, as a rule; a claim that finds its key takes two, a
/// takeover three. A key that this process has seen lately is looked at first, so that a duplicate is a read by its key.
/// On MySQL a claim takes two. A claim that meets another's open transaction is told at once that the key
/// is [busy](idempotent_core::InFlight::Busy); on MySQL, which cannot wait less, after a second. Times are the server's
/// `UTC_TIMESTAMP(6)`.
///
/// A record past its time stays in the table for a minute at least, and until [`Purge`](idempotent_core::Purge) removes
/// it: call it now and then.
///
/// Its connections run in READ COMMITTED, and transactions of an [`Inbox`](crate::Inbox) have some of their own, as many
/// again at most, on which a handler's statements wait for locks as the server is set. A result has to fit into one packet (`max_allowed_packet` of the server, 16 MiB
/// as a rule); a larger one is refused before it is sent.
///
/// # Proxies
/// The tests run without a proxy. By their documentation, two proxies fit with these settings, which send all statements of a
/// connection to the primary. A replica that lags does not know the latest claims.
/// - MaxScale: `readconnroute` with `router_options=master`. `readwritesplit` sends look-ups to replicas.
/// - ProxySQL: no query rule that sends reads of this user to another hostgroup, and `multiplex=0` for this user, because the
///   store sets variables of its session.
///
/// # TLS
/// With the feature `mysql-tls` connections use TLS where the server has it, and are encrypted then, but only
/// `ssl-mode=VERIFY_IDENTITY` in the URL makes sure of who it is: by the authorities that the system trusts, and by
/// `ssl-ca=FILE`. A client's certificate is `ssl-cert=FILE&ssl-key=FILE`.
///
/// Capabilities: batch, browse, purge, admin, inspect, steps, order, transact.
///
/// ```no_run
/// use idempotent_sqlx::MySqlStore;
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// // Makes its table where that is missing.
/// let store = MySqlStore::builder("mysql://app:secret@db.internal/shop").create(true).open().await?;
///
/// // Here that would be an error: migrations are somebody else's job.
/// let store = MySqlStore::open("mariadb://app:secret@db.internal/shop").await?;
/// # let _ = store;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct MySqlStore(Arc<ServerStore<MySqlDialect>>);

impl MySqlStore {
    /// The builder of the store for renewals.
    fn again(&self) -> MySqlStoreBuilder {
        let (settings, as_on_mysql) = &self.0.dialect.opened_with;
        MySqlStoreBuilder(settings.again(), *as_on_mysql)
    }

    /// Connects. The table has to be there: [`create`](MySqlStoreBuilder::create) makes it.
    ///
    /// # Errors
    /// As [`MySqlStoreBuilder::open`].
    ///
    /// # Cancellation
    /// As [`MySqlStoreBuilder::open`].
    pub async fn open(url: impl Into<String>) -> Result<Self, StoreError> {
        Self::builder(url).open().await
    }

    /// To set the table, the connections, limits of time or a clock.
    pub fn builder(url: impl Into<String>) -> MySqlStoreBuilder {
        MySqlStoreBuilder::new(Settings::new(Target::Url(url.into())))
    }

    /// On a pool that is there already. Its connections are taken as they are, their isolation level too; keep its
    /// `acquire_timeout` short.
    pub fn on_pool(pool: sqlx::MySqlPool) -> MySqlStoreBuilder {
        MySqlStoreBuilder::new(Settings::new(Target::Pool(pool)))
    }
}

server_store!(MySqlStore, with_steps, with_order, with_transact);
server_steps!(MySqlStore);
server_order!(MySqlStore);
server_inbox!(
    MySqlStore,
    MySql,
    pool: "MySqlPool",
    "Meanwhile others are told at once that it is busy, and so is this claim where another's transaction holds it: that goes \
     on, whatever the server's wait for locks is. (On MySQL a claim that meets another in the very same instant may wait for \
     that transaction.) Whatever the answer, the record is locked until this transaction ends, so that its owner can neither \
     renew nor settle it: do not keep one open whose claim was not granted. Above READ COMMITTED the gaps beside it are, too."
);
