//! The [`DelayTable`] type: a handle to the table, which the other files extend.
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use idempotent_core::{Clock, StoreError, StoreErrorKind, Timestamp};
use sqlx::Pool;
use tokio::sync::broadcast;

use super::database::DelayDb;
use super::statements::DelayStatements;
use crate::sql_database::{RowValues, SqlValue};
use crate::table_database::{PoolError, on_connection};

/// A table of delayed tasks in your database, such as the cancellation of an order that is not paid in time.
///
/// [`schedule_in`](Self::schedule_in) schedules a task in your transaction: the order and its time limit are
/// committed together. If the process dies in between, neither an order without a limit nor a limit without an order
/// remains. A delay queue in another system cannot offer this. Without a transaction, the table is a
/// [`Delay`](idempotent_mq::Delay) like any other.
///
/// A [`DelayTableSource`](super::DelayTableSource) delivers due tasks, at least once and never early by the
/// database's clock. An annotated handler makes the task take effect once. Tasks that become due while no process
/// runs are delivered when one starts.
///
/// Clones share the same table and are cheap.
///
/// ```no_run
/// # async fn example(pool: sqlx::PgPool) -> Result<(), Box<dyn std::error::Error>> {
/// use std::time::Duration;
///
/// use idempotent_sqlx::{DelayTable, ScheduledTask};
///
/// let limits = DelayTable::builder(pool.clone()).table("order_limits").create(true).open().await?;
///
/// let mut tx = pool.begin().await?;
/// sqlx::query("INSERT INTO orders (id, paid) VALUES (17, false)").execute(&mut *tx).await?;
/// limits.put_in(&mut tx, &ScheduledTask::after("order-17", Duration::from_secs(30 * 60), b"17".to_vec())).await?;
/// tx.commit().await?;
/// limits.wake(); // otherwise, the source finds the task some ms later
///
/// // The order is paid: the same commit cancels the limit. The handler still checks the order.
/// let mut tx = pool.begin().await?;
/// sqlx::query("UPDATE orders SET paid = true WHERE id = 17").execute(&mut *tx).await?;
/// limits.cancel_in(&mut tx, "order-17").await?;
/// tx.commit().await?;
/// # Ok(())
/// # }
/// ```
pub struct DelayTable<Db: DelayDb>(pub(super) Arc<DelayTableInner<Db>>);

pub(super) struct DelayTableInner<Db: DelayDb> {
    pub(super) pool: Pool<Db>,
    pub(super) statements: DelayStatements,
    pub(super) table: String,
    pub(super) visibility: Duration,
    pub(super) poll: Duration,
    /// Overrides the database's clock.
    pub(super) clock: Option<Arc<dyn Clock>>,
    /// The clock of the timers: `clock`, or that of the machine.
    pub(super) timers: Arc<dyn Clock>,
    /// Notifies the sources of this process of scheduled tasks.
    pub(super) wakeups: broadcast::Sender<Wakeup>,
    /// The number of queries outside of the caller's transactions.
    pub(super) queries: AtomicU64,
}

/// A notification that tasks were written in this process.
#[derive(Clone, Copy, Debug)]
pub(super) enum Wakeup {
    /// A task that is due at this time, by the database's clock. `open`: its transaction may not have committed.
    At { at: i64, open: bool },
    /// A task that is due at this time of this process.
    In { at: Instant, open: bool },
    /// A task with an unknown time: the sources look.
    Look,
}

/// The capacity of the channel. A source that misses notifications looks for due tasks.
pub(super) const WAKEUP_CAPACITY: usize = 64;

/// The maximum duration of a statement.
const STATEMENT_TIMEOUT: Duration = Duration::from_secs(30);
/// Implemented without `derive`, which would require `Db: Clone`.
impl<Db: DelayDb> Clone for DelayTable<Db> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<Db: DelayDb> fmt::Debug for DelayTable<Db> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DelayTable").field("table", &self.0.table).finish_non_exhaustive()
    }
}

impl<Db: DelayDb> DelayTable<Db> {
    /// Wakes the sources of this process, so that they look at once. Call this method after the commit of a
    /// transaction that schedules tasks.
    pub fn wake(&self) {
        self.notify(Wakeup::Look);
    }

    /// Returns the statements that look for due tasks, so that a test can explain them.
    #[doc(hidden)]
    #[must_use]
    pub fn __plans(&self) -> [String; 3] {
        [self.0.statements.ahead(), self.0.statements.__due(), self.0.statements.backlog()]
    }

    /// Returns the number of queries, so that a test can check that no source polls.
    #[doc(hidden)]
    #[must_use]
    pub fn __asked(&self) -> u64 {
        self.0.queries.load(Ordering::Relaxed)
    }

    pub(super) fn notify(&self, wakeup: Wakeup) {
        // Sending fails only if the process has no source.
        let _ = self.0.wakeups.send(wakeup);
    }

    /// Returns the time as a statement's argument: null if the database's clock is used.
    pub(super) fn now(&self) -> SqlValue {
        let micros = |now: Timestamp| i64::try_from(now.0).unwrap_or(i64::MAX);
        SqlValue::Int(self.0.clock.as_ref().map(|clock| micros(clock.wall())))
    }

    pub(super) async fn execute(&self, sql: impl Into<Arc<str>>, args: Vec<SqlValue>) -> Result<u64, StoreError> {
        let sql = sql.into();
        self.on_connection(async |connection| Db::execute(connection, sql, args).await).await
    }

    pub(super) async fn fetch(
        &self,
        sql: impl Into<Arc<str>>,
        args: Vec<SqlValue>,
        shape: &'static str,
    ) -> Result<Vec<RowValues>, StoreError> {
        let sql = sql.into();
        self.on_connection(async |connection| Db::fetch(connection, sql, args, shape).await).await
    }

    /// Runs statements on a connection of the pool, for a limited time.
    pub(super) async fn on_connection<T>(
        &self,
        run: impl AsyncFnOnce(&mut Db::Connection) -> Result<T, sqlx::Error>,
    ) -> Result<T, StoreError> {
        let query = async {
            let done = on_connection(&self.0.pool, run).await;
            done.map_err(|PoolError { sent, error }| self.store_error(sent, error))
        };
        self.bounded(query).await
    }

    pub(super) async fn bounded<T>(&self, query: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
        self.0.queries.fetch_add(1, Ordering::Relaxed);
        let silent = || {
            let text = format!("the database of `{}` did not respond within {STATEMENT_TIMEOUT:?}", self.0.table);
            StoreError::new(StoreErrorKind::Ambiguous).because(text)
        };
        tokio::time::timeout(STATEMENT_TIMEOUT, query).await.unwrap_or_else(|_| Err(silent()))
    }

    pub(super) fn store_error(&self, sent: bool, error: sqlx::Error) -> StoreError {
        Db::store_error(&self.0.pool, &self.0.table, sent, error)
    }
}
