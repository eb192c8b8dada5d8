//! How a table of delayed work is set up.
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use idempotent_core::{Clock, StoreError, StoreErrorKind, SystemClock};
use sqlx::Pool;
use tokio::sync::broadcast;

use super::database::DelayDb;
use super::handle::{DelayTable, DelayTableInner};
use super::statements::DelayStatements;
use super::wakeup::WAKEUP_CAPACITY;
use crate::table::Table;

/// Sets up a [`DelayTable`].
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

/// Work that is held for longer than this is kept alive meanwhile.
const LONGEST_VISIBILITY: Duration = Duration::from_secs(7 * 86_400);
const SHORTEST_POLL: Duration = Duration::from_millis(2);
const LONGEST_POLL: Duration = Duration::from_secs(3_600);

impl<Db: DelayDb> DelayTable<Db> {
    /// A table in the database of this pool, whose connections its sources use.
    pub fn builder(pool: Pool<Db>) -> DelayTableBuilder<Db> {
        DelayTableBuilder::new(pool)
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

    /// The name of the table: letters a-z, digits and `_`, at most 52, no digit first. `NAME_migrations` stands beside it.
    /// Each kind of work has a table of its own, and its own consumers.
    ///
    /// # Default
    /// `idempotent_delay`
    pub fn table(mut self, name: impl Into<String>) -> Self {
        self.table = name.into();
        self
    }

    /// Whether a missing table is made. Without it a missing table is an error that says so.
    ///
    /// # Default
    /// false
    pub fn create(mut self, create: bool) -> Self {
        self.create = create;
        self
    }

    /// How long a delivery is its consumer's, unless that [keeps it alive](idempotent_mq::Settle::keep_alive), which a
    /// [`Consumer`](idempotent_mq::Consumer) does; then it comes again by itself. 1 ms to 7 days.
    ///
    /// # Default
    /// 30 s
    pub fn visibility(mut self, time: Duration) -> Self {
        self.visibility = time;
        self
    }

    /// How many deliveries in a row may be lost, settled by nobody in time, before what was delivered is put among the dead
    /// letters instead of coming again: it may be what kills its consumers. What a consumer retries does not count.
    ///
    /// # Default
    /// 16, which are 17 deliveries
    pub fn max_lost(mut self, deliveries: u32) -> Self {
        self.max_lost = deliveries;
        self
    }

    /// How often a source looks for what other processes have scheduled to be due before what it waits for. What was due
    /// later, or was scheduled in this process, is not late by it. 2 ms to 1 h.
    ///
    /// # Default
    /// 1 s
    pub fn poll(mut self, interval: Duration) -> Self {
        self.poll = interval;
        self
    }

    /// A clock instead of the database's and of the timers between looks: for tests. Every process must have the same.
    ///
    /// # Default
    /// The database's
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = Some(clock);
        self
    }

    /// The table.
    ///
    /// # Errors
    /// A setting or the name cannot be what it is, the database is not to be reached, or its table is missing, of another
    /// version, or somebody else's.
    ///
    /// # Cancellation
    /// The table may be made or not.
    pub async fn open(self) -> Result<DelayTable<Db>, StoreError> {
        self.check()?;
        let table = Table::new(&self.table)?.with_room_for_migrations()?;
        Db::migrate(&self.pool, table.name(), self.create).await?;
        Ok(DelayTable(Arc::new(DelayTableInner {
            pool: self.pool,
            statements: DelayStatements::new(Db::KIND, &table, self.visibility, self.max_lost),
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
                "visibility is {:?}: it has to be 1 ms to 7 days; what takes longer is kept alive while it runs",
                self.visibility
            ));
        }
        if !(SHORTEST_POLL..=LONGEST_POLL).contains(&self.poll) {
            return refuse(format!("poll is {:?}: it has to be 2 ms to 1 h", self.poll));
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
