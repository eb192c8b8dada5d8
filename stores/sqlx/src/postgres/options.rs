//! The builder of the PostgreSQL store.
use idempotent_core::StoreError;
use sqlx::PgPool;

use super::PostgresStore;
use super::migrate::{BOOKKEEPING, MIGRATIONS};
use super::session::Session;
use crate::schema::{self, SchemaStep};
use crate::server::{ServerSettings, server_builder};

/// A builder for a [`PostgresStore`].
#[derive(Clone, Debug)]
#[must_use]
pub struct PostgresStoreBuilder(pub(super) ServerSettings<PgPool>, pub(super) Session);

server_builder!(PostgresStoreBuilder);

impl PostgresStoreBuilder {
    /// Sets the schema of both tables. The schema must exist. The rules for the name of a table apply.
    ///
    /// # Default
    /// The first schema in the connection's `search_path`
    pub fn schema(mut self, name: impl Into<String>) -> Self {
        self.0.schema = Some(name.into());
        self
    }

    /// Sets whether a waiting run receives a notification when the run that it waits for ends. Notifications (`LISTEN`) use one
    /// more connection while a run waits. Without notifications, the store polls the record every 50 ms. The store always
    /// polls if a pooler lends connections for one transaction. The store notifies other processes with either setting.
    ///
    /// # Default
    /// true
    pub fn listening(mut self, listening: bool) -> Self {
        self.1.listening = listening;
        self
    }

    /// Returns the SQL text of all migrations of the store's tables, without a connection to the database.
    ///
    /// Use it where an administrator creates tables. A program with other rights executes the text, and the store opens
    /// without [`create`](Self::create). A later version of this crate may add migrations, and never changes old ones.
    ///
    /// ```
    /// use idempotent_sqlx::PostgresStore;
    ///
    /// for step in PostgresStore::builder("postgres://db.example/app").table("payments").schema_steps()? {
    ///     println!("{step}");
    /// }
    /// # Ok::<_, idempotent_core::StoreError>(())
    /// ```
    ///
    /// # Errors
    /// [`Schema`](idempotent_core::StoreErrorKind::Schema): the name of the table or of the schema is refused.
    pub fn schema_steps(&self) -> Result<Vec<SchemaStep>, StoreError> {
        Ok(schema::steps(MIGRATIONS, &self.0.table()?, &BOOKKEEPING))
    }

    /// Connects to the database and opens the store. With [`create`](Self::create), this method also creates missing tables. If
    /// several processes open the store at the same time, one migrates and the others wait.
    ///
    /// # Errors
    /// [`Schema`](idempotent_core::StoreErrorKind::Schema): a name or the URL is refused, the table is missing or of another version, or a
    /// [pooler](PostgresStore#poolers) loses prepared statements.
    /// [`Denied`](idempotent_core::StoreErrorKind::Denied): user, password, database or rights. [`Foreign`](idempotent_core::StoreErrorKind::Foreign):
    /// another program created the table. [`NotApplied`](idempotent_core::StoreErrorKind::NotApplied): no connection.
    ///
    /// # Cancellation
    /// Either all migrations are applied, or none.
    pub async fn connect(self) -> Result<PostgresStore, StoreError> {
        super::open::open(self.0, self.1).await.map(PostgresStore)
    }
}
