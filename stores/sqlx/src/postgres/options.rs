//! The builder of the PostgreSQL store.
use idempotent_core::StoreError;
use sqlx::PgPool;

use super::PostgresStore;
use super::migrate::{self, KNOWN};
use super::open::{Session, partitions};
use crate::schema::SchemaStep;
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

    /// Sets the number of hash partitions of the tables with the records and the steps, from 2 to 128. [`create`](Self::create) and
    /// [`schema_steps`](Self::schema_steps) then divide new tables by `PARTITION BY HASH (id)`. Consider 16 partitions from about 100
    /// million records on.
    ///
    /// The primary key keeps an id unique over all partitions, and no statement and no guarantee changes. Each partition is vacuumed by
    /// itself, so several vacuums work at the same time, and each index is smaller. A claim costs the server more processor time,
    /// because the server plans it again for its partition. Each expired record is removed by itself, as in one table.
    ///
    /// A table keeps its partitions, and no migration converts a table. With this setting, opening refuses a table with another number
    /// of partitions. Without it, a store opens tables with any number, so workers do not need it.
    ///
    /// # Default
    /// No partitions
    pub fn partitions(mut self, partitions: u16) -> Self {
        self.0.partitions = Some(partitions);
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
    /// [`Schema`](idempotent_core::StoreErrorKind::Schema): the name of the table or of the schema, or the number of partitions is
    /// refused.
    pub fn schema_steps(&self) -> Result<Vec<SchemaStep>, StoreError> {
        Ok(migrate::steps(&self.0.table()?, &KNOWN, partitions(&self.0)?))
    }

    /// Connects to the database and opens the store. With [`create`](Self::create), this method also creates missing tables. If
    /// several processes open the store at the same time, one migrates and the others wait.
    ///
    /// With the feature `postgres-tls`, connecting sets the default `CryptoProvider` of rustls to `ring`, unless the process has set one.
    ///
    /// # Errors
    /// [`Schema`](idempotent_core::StoreErrorKind::Schema): a name or the URL is refused, the table is missing, of another version or with other
    /// [partitions](Self::partitions), or a [pooler](PostgresStore#poolers) loses prepared statements.
    /// [`Denied`](idempotent_core::StoreErrorKind::Denied): user, password, database or rights. [`Foreign`](idempotent_core::StoreErrorKind::Foreign):
    /// another program created the table. [`NotApplied`](idempotent_core::StoreErrorKind::NotApplied): no connection.
    ///
    /// # Cancellation
    /// Either all migrations are applied, or none.
    pub async fn connect(self) -> Result<PostgresStore, StoreError> {
        super::open::open(self.0, self.1).await.map(PostgresStore)
    }
}
