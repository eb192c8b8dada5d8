//! The builder of the MariaDB and MySQL store.
use idempotent_core::StoreError;
use sqlx::MySqlPool;

use super::MySqlStore;
use crate::server::{Settings, server_builder};

/// A builder for a [`MySqlStore`].
#[derive(Clone, Debug)]
#[must_use]
pub struct MySqlStoreBuilder(pub(super) Settings<MySqlPool>, pub(super) bool);

server_builder!(MySqlStoreBuilder);

impl MySqlStoreBuilder {
    pub(super) fn new(settings: Settings<MySqlPool>) -> Self {
        Self(settings, false)
    }

    /// Sets the database (in MySQL also called schema) of both tables. The database must exist. The rules for the name of a table
    /// apply.
    ///
    /// # Default
    /// The database of the URL
    pub fn schema(mut self, name: impl Into<String>) -> Self {
        self.0.schema = Some(name.into());
        self
    }

    /// Uses the statements for MySQL on a MariaDB server, for tests.
    #[doc(hidden)]
    pub fn __as_on_mysql(mut self) -> Self {
        self.1 = true;
        self
    }

    /// Connects to the database and opens the store. With [`create`](Self::create), this method also creates missing tables. If
    /// several processes open the store at the same time, one migrates and the others wait.
    ///
    /// # Errors
    /// [`Schema`](idempotent_core::StoreErrorKind::Schema): a name, the URL or the server's version is refused, the table is missing or
    /// of another version. [`Denied`](idempotent_core::StoreErrorKind::Denied): user, password, database or rights.
    /// [`Foreign`](idempotent_core::StoreErrorKind::Foreign): another program created the table. [`NotApplied`](idempotent_core::StoreErrorKind::NotApplied): no
    /// connection.
    ///
    /// # Cancellation
    /// Dropping it leaves the tables as they were or migrated as far as it came; opening again goes on from there.
    pub async fn open(self) -> Result<MySqlStore, StoreError> {
        super::open::open(self.0, self.1).await.map(MySqlStore)
    }
}
