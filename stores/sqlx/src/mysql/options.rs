//! The builder of the MariaDB and MySQL store.
use idempotent_core::StoreError;
use sqlx::{MySql, MySqlPool};

use super::MySqlStore;
use super::migrate::KNOWN;
use crate::schema::SchemaStep;
use crate::server::{ServerSettings, server_builder};

/// A builder for a [`MySqlStore`].
#[derive(Clone, Debug)]
#[must_use]
pub struct MySqlStoreBuilder(pub(super) ServerSettings<MySqlPool>, pub(super) bool);

server_builder!(MySqlStoreBuilder);

impl MySqlStoreBuilder {
    pub(super) fn new(settings: ServerSettings<MySqlPool>) -> Self {
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

    /// Returns the SQL text of all migrations of the store's tables, without a connection to the database.
    ///
    /// Use it where an administrator creates tables. A program with other rights executes the text, and the store opens
    /// without [`create`](Self::create). A later version of this crate may add migrations, and never changes old ones.
    ///
    /// ```
    /// use idempotent_sqlx::MySqlStore;
    ///
    /// for step in MySqlStore::builder("mysql://db.example/app").table("payments").schema_steps()? {
    ///     println!("{step}");
    /// }
    /// # Ok::<_, idempotent_core::StoreError>(())
    /// ```
    ///
    /// # Errors
    /// [`Schema`](idempotent_core::StoreErrorKind::Schema): the name of the table or of the schema is refused.
    pub fn schema_steps(&self) -> Result<Vec<SchemaStep>, StoreError> {
        Ok(KNOWN.steps::<MySql>(&self.0.table()?.in_backticks()))
    }

    /// Connects to the database and opens the store. With [`create`](Self::create), this method also creates missing tables. If
    /// several processes open the store at the same time, one migrates and the others wait.
    ///
    /// With the feature `mysql-tls`, connecting sets the default `CryptoProvider` of rustls to `ring`, unless the process has set one.
    ///
    /// # Errors
    /// [`Schema`](idempotent_core::StoreErrorKind::Schema): a name, the URL or the server's version is refused, the table is missing or
    /// of another version. [`Denied`](idempotent_core::StoreErrorKind::Denied): user, password, database or rights.
    /// [`Foreign`](idempotent_core::StoreErrorKind::Foreign): another program created the table. [`NotApplied`](idempotent_core::StoreErrorKind::NotApplied): no
    /// connection.
    ///
    /// # Cancellation
    /// Some of the migrations may be applied. Opening the store again continues with the next one.
    pub async fn connect(self) -> Result<MySqlStore, StoreError> {
        super::open::open(self.0, self.1).await.map(MySqlStore)
    }
}
