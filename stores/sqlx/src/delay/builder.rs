//! The builder of [`DelayTable`].
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use idempotent_core::{Clock, StoreError, StoreErrorKind, SystemClock};
use sqlx::Pool;
use tokio::sync::broadcast;

use super::database::DelayDb;
use super::handle::{DelayTable, DelayTableInner, WAKEUP_CAPACITY};
use super::statements::DelayStatements;
use crate::schema::{SchemaStatus, SchemaStep};
use crate::table_database::table_named;

/// A builder for [`DelayTable`].
#[must_use]
pub struct DelayTableBuilder<Db: DelayDb> {
    pool: Pool<Db>,
    table: String,
    create: bool,
    visibility: Duration,
    max_lost: u32,
    poll: Duration,
    clock: Option<Arc<dyn Clock>>,
}

/// The maximum visibility timeout. A consumer extends the timeout of a task that takes longer.
const LONGEST_VISIBILITY: Duration = Duration::from_secs(7 * 86_400);
const SHORTEST_POLL: Duration = Duration::from_millis(2);
const LONGEST_POLL: Duration = Duration::from_secs(3_600);

impl<Db: DelayDb> DelayTable<Db> {
    /// Returns a builder for a table in the database of `pool`. The sources of the table use the connections of
    /// `pool`.
    pub fn builder(pool: Pool<Db>) -> DelayTableBuilder<Db> {
        DelayTableBuilder::new(pool)
    }

    /// Opens the existing table `idempotent_delay` in the database of `pool`. To create the table, use
    /// [`create`](DelayTableBuilder::create).
    ///
    /// # Errors
    /// The same as [`DelayTableBuilder::open`].
    ///
    /// # Cancellation
    /// Nothing changes.
    pub async fn open(pool: Pool<Db>) -> Result<Self, StoreError> {
        Self::builder(pool).open().await
    }
}

impl<Db: DelayDb> DelayTableBuilder<Db> {
    pub(super) fn new(pool: Pool<Db>) -> Self {
        Self {
            pool,
            table: "idempotent_delay".into(),
            create: false,
            visibility: Duration::from_secs(30),
            max_lost: 16,
            poll: Duration::from_secs(1),
            clock: None,
        }
    }

    /// Sets the name of the table: 1 to 52 characters of a-z, digits and `_`, not starting with a digit. The table
    /// `NAME_migrations` belongs to it as well. Use one table, with its own consumers, for each kind of task.
    ///
    /// # Default
    /// `idempotent_delay`
    pub fn table(mut self, name: impl Into<String>) -> Self {
        self.table = name.into();
        self
    }

    /// Sets whether [`open`](Self::open) creates a missing table. Otherwise, a missing table is an error that names
    /// this setting.
    ///
    /// # Default
    /// false
    pub fn create(mut self, create: bool) -> Self {
        self.create = create;
        self
    }

    /// Sets the visibility timeout: the time after which an unsettled delivery is delivered again. A
    /// [`Consumer`](idempotent_mq::Consumer) [extends](idempotent_mq::Settle::keep_alive) the timeout while its
    /// handler runs. 1 ms to 7 days.
    ///
    /// # Default
    /// 30 s
    pub fn visibility(mut self, time: Duration) -> Self {
        self.visibility = time;
        self
    }

    /// Sets how many consecutive deliveries of a task may be lost, that is, not settled in time, before the task
    /// becomes a dead letter: it may be the cause that its consumers die. Retries by a consumer do not count.
    ///
    /// # Default
    /// 16, which allows 17 deliveries
    pub fn max_lost(mut self, deliveries: u32) -> Self {
        self.max_lost = deliveries;
        self
    }

    /// Sets how often a source looks for tasks that other processes schedule to be due earlier than those it knows.
    /// Tasks scheduled in the same process, or due later, are not delayed by this interval. 2 ms to 1 h.
    ///
    /// # Default
    /// 1 s
    pub fn poll(mut self, interval: Duration) -> Self {
        self.poll = interval;
        self
    }

    /// Sets a clock that overrides the database's and that of the timers, for tests. Every process must use the same
    /// clock.
    ///
    /// # Default
    /// The database's clock
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = Some(clock);
        self
    }

    /// Compares the table with the migrations of this version. Reads only.
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

    /// Returns the SQL text of all migrations of the table, without using a connection. Use it where an administrator
    /// creates tables.
    ///
    /// # Errors
    /// The table name is invalid.
    pub fn schema_steps(&self) -> Result<Vec<SchemaStep>, StoreError> {
        Ok(Db::TABLES.steps::<Db>(&table_named::<Db>(&self.table)?))
    }

    /// Opens the table, and creates it if [`create`](Self::create) is set.
    ///
    /// # Errors
    /// A setting or the table name is invalid, the database is unreachable, or the table is missing, has another
    /// version, or is not a delay table.
    ///
    /// # Cancellation
    /// The table may or may not have been created.
    pub async fn open(self) -> Result<DelayTable<Db>, StoreError> {
        self.check()?;
        let table = Db::open_tables(&self.pool, table_named::<Db>(&self.table)?, self.create, Db::TABLES).await?;
        Ok(DelayTable(Arc::new(DelayTableInner {
            pool: self.pool,
            statements: DelayStatements::new(Db::DIALECT, &table, self.visibility, self.max_lost),
            table: self.table,
            visibility: self.visibility,
            poll: self.poll,
            timers: self.clock.clone().unwrap_or_else(|| Arc::new(SystemClock::new())),
            clock: self.clock,
            wakeups: broadcast::Sender::new(WAKEUP_CAPACITY),
            queries: AtomicU64::new(0),
        })))
    }

    fn check(&self) -> Result<(), StoreError> {
        let refuse = |text: String| Err(StoreError::new(StoreErrorKind::Schema).because(text));
        if !(Duration::from_millis(1)..=LONGEST_VISIBILITY).contains(&self.visibility) {
            return refuse(format!(
                "visibility is {:?}: out of range; choose 1 ms to 7 days. The consumer extends the timeout of longer runs",
                self.visibility
            ));
        }
        if !(SHORTEST_POLL..=LONGEST_POLL).contains(&self.poll) {
            return refuse(format!("poll is {:?}: out of range; choose 2 ms to 1 h", self.poll));
        }
        Ok(())
    }
}

impl<Db: DelayDb> fmt::Debug for DelayTableBuilder<Db> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DelayTableBuilder")
            .field("table", &self.table)
            .field("create", &self.create)
            .field("visibility", &self.visibility)
            .field("max_lost", &self.max_lost)
            .field("poll", &self.poll)
            .finish_non_exhaustive()
    }
}
