//! The builder of [`Outbox`].
use std::fmt;
use std::sync::Arc;

use idempotent_core::{Clock, StoreError};
use sqlx::Pool;
use tokio::sync::Notify;

use super::confirmation_queue::ConfirmationQueue;
use super::database::OutboxDb;
use super::handle::{Outbox, OutboxInner};
use super::statements::{OutboxStatements, StatementEdit};
use crate::schema::{SchemaStatus, SchemaStep};
use crate::table_database::table_named;

/// A builder for [`Outbox`].
#[must_use]
pub struct OutboxBuilder<Db: OutboxDb> {
    pool: Pool<Db>,
    table: String,
    create: bool,
    clock: Option<Arc<dyn Clock>>,
    edit: Option<StatementEdit>,
}

impl<Db: OutboxDb> Outbox<Db> {
    /// Returns a builder for an outbox in the database of `pool`. The relays and consumers of the outbox use the
    /// connections of `pool`.
    pub fn builder(pool: Pool<Db>) -> OutboxBuilder<Db> {
        OutboxBuilder::new(pool)
    }

    /// Opens the existing outbox `idempotent_outbox` in the database of `pool`. To create the tables, use
    /// [`create`](OutboxBuilder::create).
    ///
    /// # Errors
    /// The same as [`OutboxBuilder::open`].
    ///
    /// # Cancellation
    /// Nothing changes.
    pub async fn open(pool: Pool<Db>) -> Result<Self, StoreError> {
        Self::builder(pool).open().await
    }
}

impl<Db: OutboxDb> OutboxBuilder<Db> {
    pub(super) fn new(pool: Pool<Db>) -> Self {
        Self { pool, table: "idempotent_outbox".into(), create: false, clock: None, edit: None }
    }

    /// Sets the name of the outbox table: 1 to 52 characters of a-z, digits and `_`, not starting with a digit. The
    /// tables `NAME_log`, `NAME_audit` and `NAME_migrations` belong to the outbox as well.
    ///
    /// # Default
    /// `idempotent_outbox`
    pub fn table(mut self, name: impl Into<String>) -> Self {
        self.table = name.into();
        self
    }

    /// Sets whether [`open`](Self::open) creates missing tables. Otherwise, a missing table is an error that names
    /// this setting.
    ///
    /// # Default
    /// false
    pub fn create(mut self, create: bool) -> Self {
        self.create = create;
        self
    }

    /// Sets a clock that overrides the database's, for tests. Every process must use the same clock.
    ///
    /// # Default
    /// The database's clock
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = Some(clock);
        self
    }

    /// Edits each statement before the outbox sends it; the first argument is the statement's name, and `?` is a
    /// placeholder. For tests that check that a changed statement is noticed.
    #[doc(hidden)]
    pub fn __edit(mut self, edit: impl Fn(&'static str, String) -> String + Send + Sync + 'static) -> Self {
        self.edit = Some(Arc::new(edit));
        self
    }

    /// Compares the tables of the outbox with the migrations of this version. Reads only.
    ///
    /// # Errors
    /// The table name is invalid, or the database is unreachable. Missing migrations and problems of the tables are part of
    /// the status.
    ///
    /// # Cancellation
    /// Dropping the future has no effect.
    pub async fn schema_status(&self) -> Result<SchemaStatus, StoreError> {
        Db::schema_status(&self.pool, table_named::<Db>(&self.table)?, Db::TABLES).await
    }

    /// Returns the SQL text of all migrations of the tables of the outbox, without using a connection. Use it where an administrator
    /// creates tables.
    ///
    /// # Errors
    /// The table name is invalid.
    pub fn schema_steps(&self) -> Result<Vec<SchemaStep>, StoreError> {
        Ok(Db::TABLES.steps::<Db>(&table_named::<Db>(&self.table)?))
    }

    /// Opens the outbox, and creates its tables if [`create`](Self::create) is set.
    ///
    /// # Errors
    /// The table name is invalid, the database is unreachable, or the tables are missing, have another version, or do
    /// not belong to an outbox.
    ///
    /// # Cancellation
    /// The tables may or may not have been created.
    pub async fn open(self) -> Result<Outbox<Db>, StoreError> {
        let table = Db::open_tables(&self.pool, table_named::<Db>(&self.table)?, self.create, Db::TABLES).await?;
        Ok(Outbox(Arc::new(OutboxInner {
            pool: self.pool,
            statements: OutboxStatements::new(Db::DIALECT, &table, self.edit),
            table: self.table,
            clock: self.clock,
            written: Notify::new(),
            confirmations: ConfirmationQueue::default(),
        })))
    }
}

impl<Db: OutboxDb> fmt::Debug for OutboxBuilder<Db> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OutboxBuilder")
            .field("table", &self.table)
            .field("create", &self.create)
            .finish_non_exhaustive()
    }
}
