//! How a store is set up, and what is refused before the server is asked.
use idempotent_core::StoreError;
use sqlx::MySqlPool;

use super::MySqlStore;
use crate::server::{Settings, server_builder};

/// Sets up a [`MySqlStore`].
#[derive(Clone, Debug)]
#[must_use]
pub struct MySqlStoreBuilder(pub(super) Settings<MySqlPool>, pub(super) bool);

server_builder!(MySqlStoreBuilder);

impl MySqlStoreBuilder {
    pub(super) fn new(settings: Settings<MySqlPool>) -> Self {
        Self(settings, false)
    }

    /// The database (MySQL's word is also schema) of both tables, which has to be there. Of the same letters as a table's
    /// name.
    ///
    /// # Default
    /// That of the URL
    pub fn schema(mut self, name: impl Into<String>) -> Self {
        self.0.schema = Some(name.into());
        self
    }

    /// For the tests of the statements for MySQL on a MariaDB.
    #[doc(hidden)]
    pub fn __as_on_mysql(mut self) -> Self {
        self.1 = true;
        self
    }

    /// Connects; with [`create`](Self::create) it makes what is missing. Of several processes that open at once, one
    /// migrates and the others wait for it.
    ///
    /// # Errors
    /// [`Schema`](idempotent_core::StoreErrorKind::Schema): a name, the URL or the server's version is refused, the table is missing or
    /// of another version. [`Denied`](idempotent_core::StoreErrorKind::Denied): user, password, database or rights.
    /// [`Foreign`](idempotent_core::StoreErrorKind::Foreign): the table is not ours. [`NotApplied`](idempotent_core::StoreErrorKind::NotApplied): no
    /// connection.
    ///
    /// # Cancellation
    /// Dropping it leaves the tables as they were or migrated as far as it came; opening again goes on from there.
    pub async fn open(self) -> Result<MySqlStore, StoreError> {
        super::open::open(self.0, self.1).await.map(MySqlStore)
    }
}
