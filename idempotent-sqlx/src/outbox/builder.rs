//! How an outbox is set up.
use std::fmt;
use std::sync::Arc;

use idempotent_core::{Clock, StoreError};
use sqlx::Pool;
use tokio::sync::Notify;

use super::confirmation_queue::ConfirmationQueue;
use super::database::OutboxDb;
use super::handle::{Outbox, OutboxInner};
use super::statements::{OutboxStatements, StatementEdit};
use crate::table::Table;

/// Sets up an [`Outbox`].
#[must_use]
pub struct OutboxBuilder<Db: OutboxDb> {
    pool: Pool<Db>,
    table: String,
    create: bool,
    clock: Option<Arc<dyn Clock>>,
    edit: Option<StatementEdit>,
}

impl<Db: OutboxDb> Outbox<Db> {
    /// An outbox in the database of this pool, whose connections its relay and its consumers use.
    pub fn builder(pool: Pool<Db>) -> OutboxBuilder<Db> {
        OutboxBuilder::new(pool)
    }
}

impl<Db: OutboxDb> OutboxBuilder<Db> {
    pub(super) fn new(pool: Pool<Db>) -> Self {
        Self { pool, table: "idempotent_outbox".into(), create: false, clock: None, edit: None }
    }

    /// The name of the table of stubs: letters a-z, digits and `_`, at most 52, no digit first. `NAME_log`, `NAME_audit` and
    /// `NAME_migrations` stand beside it.
    ///
    /// # Default
    /// `idempotent_outbox`
    pub fn table(mut self, name: impl Into<String>) -> Self {
        self.table = name.into();
        self
    }

    /// Whether missing tables are made. Without it a missing table is an error that says so.
    ///
    /// # Default
    /// false
    pub fn create(mut self, create: bool) -> Self {
        self.create = create;
        self
    }

    /// A clock instead of the database's: for tests. Every process must have the same.
    ///
    /// # Default
    /// The database's
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = Some(clock);
        self
    }

    /// Changes each statement, by its name, before it is sent: for tests of what notices that. `?` stands for a value.
    #[doc(hidden)]
    pub fn __edit(mut self, edit: impl Fn(&'static str, String) -> String + Send + Sync + 'static) -> Self {
        self.edit = Some(Arc::new(edit));
        self
    }

    /// The outbox.
    ///
    /// # Errors
    /// The name is none, the database is not to be reached, or its tables are missing, of another version, or somebody
    /// else's.
    ///
    /// # Cancellation
    /// Tables may be made or not.
    pub async fn open(self) -> Result<Outbox<Db>, StoreError> {
        let table = Table::new(&self.table)?.with_room_for_migrations()?;
        Db::migrate(&self.pool, table.name(), self.create).await?;
        Ok(Outbox(Arc::new(OutboxInner {
            pool: self.pool,
            statements: OutboxStatements::new(Db::KIND, &table, self.edit),
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
