//! The [`DelayTable`] type: a handle to the table, which the other files extend.
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use idempotent_core::{Clock, StoreError, StoreErrorKind, Timestamp};
use sqlx::Pool;
use tokio::sync::broadcast;

use super::database::DelayDb;
use super::statements::DelayStatements;
use super::wakeup::Wakeup;
use crate::desk::{Arg, Cells};

/// Work that is to be done at a time, in a table of your database: an order that is cancelled unless it is paid by then.
///
/// [`schedule_in`](Self::schedule_in) writes it in your transaction: the order and its time limit are one commit or none, and
/// a process that dies in between leaves neither an order that nobody cancels nor a limit of no order. That is what a table has
/// over a queue elsewhere. Without a transaction it is a [`Delay`](idempotent_mq::Delay) as others are.
///
/// What is due is delivered by a [`DelayTableSource`], at least once and never before its time, which is the database's: an
/// annotated handler makes it take effect once. What was due while no process ran is delivered when one starts.
///
/// Cheap to clone.
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
/// limits.wake(); // or the source finds it by itself, some ms later
///
/// // Paid: it is called off, with the payment or not at all. The handler looks once more all the same.
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
    /// Instead of the database's.
    pub(super) clock: Option<Arc<dyn Clock>>,
    /// That one, or the machine's: for timers.
    pub(super) timers: Arc<dyn Clock>,
    /// What was written in this process.
    pub(super) wakeups: broadcast::Sender<Wakeup>,
    /// How often the database was asked something that is not in a transaction of the caller's.
    pub(super) queries: AtomicU64,
}

/// What no database needs so long for.
const STATEMENT_TIMEOUT: Duration = Duration::from_secs(30);
/// Of the same table; derived, it would ask the database's type for it.
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
    /// Tells the sources of this process that a transaction with work in it has committed, so that they look at once.
    pub fn wake(&self) {
        self.notify(Wakeup::Look);
    }

    /// The statement that takes what is due, so that a test can have it explained.
    #[doc(hidden)]
    #[must_use]
    pub fn __plans(&self) -> [String; 2] {
        [self.0.statements.ahead(), self.0.statements.__due()]
    }

    /// How often the database was asked, so that a test can see that nobody polls.
    #[doc(hidden)]
    #[must_use]
    pub fn __asked(&self) -> u64 {
        self.0.queries.load(Ordering::Relaxed)
    }

    pub(super) fn notify(&self, wakeup: Wakeup) {
        // Without a source there is nobody to tell.
        let _ = self.0.wakeups.send(wakeup);
    }

    /// The time as it goes into a statement: none where that is the database's.
    pub(super) fn now(&self) -> Arg {
        let micros = |now: Timestamp| i64::try_from(now.0).unwrap_or(i64::MAX);
        Arg::Int(self.0.clock.as_ref().map(|clock| micros(clock.wall())))
    }

    pub(super) async fn execute(&self, sql: impl Into<Arc<str>>, args: Vec<Arg>) -> Result<u64, StoreError> {
        let query = async {
            let mut connection = self.0.pool.acquire().await.map_err(|error| self.store_error(false, error))?;
            Db::execute(&mut connection, sql.into(), args).await.map_err(|error| self.store_error(true, error))
        };
        self.bounded(query).await
    }

    pub(super) async fn fetch(
        &self,
        sql: impl Into<Arc<str>>,
        args: Vec<Arg>,
        shape: &'static str,
    ) -> Result<Vec<Cells>, StoreError> {
        let query = async {
            let mut connection = self.0.pool.acquire().await.map_err(|error| self.store_error(false, error))?;
            Db::fetch(&mut connection, sql.into(), args, shape).await.map_err(|error| self.store_error(true, error))
        };
        self.bounded(query).await
    }

    pub(super) async fn bounded<T>(&self, query: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
        self.0.queries.fetch_add(1, Ordering::Relaxed);
        let silent = || {
            let text = format!("the database of `{}` has not answered within {STATEMENT_TIMEOUT:?}", self.0.table);
            StoreError::new(StoreErrorKind::Ambiguous).because(text)
        };
        tokio::time::timeout(STATEMENT_TIMEOUT, query).await.unwrap_or_else(|_| Err(silent()))
    }

    pub(super) fn store_error(&self, sent: bool, error: sqlx::Error) -> StoreError {
        Db::store_error(&self.0.pool, &self.0.table, sent, error)
    }
}
