//! Delayed work in a table: it is scheduled by itself or in the transaction of what it is about, and delivered when its time
//! has come.
//!
//! Read in this order: `sql` (the statements), `schedule` (writing, calling off), `take` (what is due, and to whom it belongs),
//! `pace` (when to look), `source` and `settler` (for a consumer), `dead`.
mod builder;
mod counts;
mod dead;
mod desk;
mod pace;
mod schedule;
mod settler;
mod source;
mod sql;
mod take;
mod wheel;
mod work;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use idempotent_core::{Clock, StoreError, StoreErrorKind, Timestamp};
use idempotent_mq::{DelayError, DelayErrorKind, SourceError, SourceErrorKind};
use sqlx::Pool;
use tokio::sync::broadcast;

pub use self::builder::DelayTableBuilder;
pub use self::counts::DelayTableCounts;
pub use self::dead::DelayTableDeadLetters;
pub use self::desk::DelayDb;
use self::pace::Told;
pub use self::settler::DelayTableTag;
pub use self::source::DelayTableSource;
use self::sql::Texts;
pub use self::work::ScheduledTask;
use crate::desk::{Arg, Cells};

/// The columns that the statements name.
pub(crate) const COLUMNS: [&str; 16] = [
    "seq",
    "id",
    "live",
    "headers",
    "body",
    "scheduled_at",
    "due_at",
    "holder",
    "taken",
    "lost",
    "attempt",
    "first_at",
    "deaths",
    "letter",
    "reason",
    "dead_at",
];

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
pub struct DelayTable<Db: DelayDb>(Arc<Inner<Db>>);

struct Inner<Db: DelayDb> {
    pool: Pool<Db>,
    texts: Texts,
    table: String,
    visibility: Duration,
    poll: Duration,
    /// Instead of the database's.
    clock: Option<Arc<dyn Clock>>,
    /// That one, or the machine's: for timers.
    timers: Arc<dyn Clock>,
    /// What was written in this process.
    bell: broadcast::Sender<Told>,
    /// How often the database was asked something that is not in a transaction of the caller's.
    asked: AtomicU64,
}

/// What no database needs so long for.
const PATIENCE: Duration = Duration::from_secs(30);
/// Words of the bell that may be unheard; who has missed some looks.
const UNHEARD: usize = 64;

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
    /// A table in the database of this pool, whose connections its sources use.
    pub fn builder(pool: Pool<Db>) -> DelayTableBuilder<Db> {
        DelayTableBuilder::new(pool)
    }

    /// Its deliveries, for a [`Consumer`](idempotent_mq::Consumer). Any number of sources, in any number of processes, share
    /// them.
    #[must_use]
    pub fn source(&self) -> DelayTableSource<Db> {
        DelayTableSource::new(self)
    }

    /// Tells the sources of this process that a transaction with work in it has committed, so that they look at once.
    pub fn wake(&self) {
        self.tell(Told::Look);
    }

    /// The statement that takes what is due, so that a test can have it explained.
    #[doc(hidden)]
    #[must_use]
    pub fn __plans(&self) -> [String; 2] {
        [self.0.texts.ahead(), self.0.texts.__due()]
    }

    /// How often the database was asked, so that a test can see that nobody polls.
    #[doc(hidden)]
    #[must_use]
    pub fn __asked(&self) -> u64 {
        self.0.asked.load(Ordering::Relaxed)
    }

    fn tell(&self, told: Told) {
        // Without a source there is nobody to tell.
        let _ = self.0.bell.send(told);
    }

    /// The time as it goes into a statement: none where that is the database's.
    fn now(&self) -> Arg {
        let micros = |now: Timestamp| i64::try_from(now.0).unwrap_or(i64::MAX);
        Arg::Int(self.0.clock.as_ref().map(|clock| micros(clock.wall())))
    }

    async fn execute(&self, sql: impl Into<Arc<str>>, args: Vec<Arg>) -> Result<u64, StoreError> {
        let asked = async {
            let mut connection = self.0.pool.acquire().await.map_err(|error| self.told(false, error))?;
            Db::execute(&mut connection, sql.into(), args).await.map_err(|error| self.told(true, error))
        };
        self.bounded(asked).await
    }

    async fn fetch(
        &self,
        sql: impl Into<Arc<str>>,
        args: Vec<Arg>,
        shape: &'static str,
    ) -> Result<Vec<Cells>, StoreError> {
        let asked = async {
            let mut connection = self.0.pool.acquire().await.map_err(|error| self.told(false, error))?;
            Db::fetch(&mut connection, sql.into(), args, shape).await.map_err(|error| self.told(true, error))
        };
        self.bounded(asked).await
    }

    async fn bounded<T>(&self, asked: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
        self.0.asked.fetch_add(1, Ordering::Relaxed);
        let silent = || {
            let text = format!("the database of `{}` has not answered within {PATIENCE:?}", self.0.table);
            StoreError::new(StoreErrorKind::Ambiguous).because(text)
        };
        tokio::time::timeout(PATIENCE, asked).await.unwrap_or_else(|_| Err(silent()))
    }

    fn told(&self, sent: bool, error: sqlx::Error) -> StoreError {
        Db::told(&self.0.pool, &self.0.table, sent, error)
    }
}

/// What a producer may conclude.
fn delay_error(doing: &str, error: StoreError) -> DelayError {
    let kind = match error.kind() {
        StoreErrorKind::NotApplied | StoreErrorKind::RolledBack => DelayErrorKind::NotApplied,
        StoreErrorKind::Ambiguous => DelayErrorKind::Ambiguous,
        _ => DelayErrorKind::Refused,
    };
    DelayError::new(kind, format!("{doing}: {error}")).with_cause(error)
}

/// What a consumer may conclude.
fn source_error(doing: &str, error: StoreError) -> SourceError {
    let kind = match error.kind() {
        StoreErrorKind::NotApplied | StoreErrorKind::Ambiguous | StoreErrorKind::RolledBack => {
            SourceErrorKind::Transient
        }
        _ => SourceErrorKind::Fatal,
    };
    SourceError::new(kind, format!("{doing}: {error}")).with_cause(error)
}
