//! The insert-only inbox, which records a key in the transaction of its effect by a unique column.
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use idempotent_core::{Key, StoreError};
use sqlx::AssertSqlSafe;

use crate::table::{LATEST, Table};

/// A table of unique keys. One `INSERT` in the caller's transaction records a key; only the first transaction with the key
/// proceeds. This is the simplest way to make a handler idempotent.
///
/// The key and the effect commit or roll back together (level L3). Record the key first, and apply the effect only if it is
/// [the first time](Self::first_time).
///
/// # When it is enough
/// - Enough: the whole effect is rows of this database, and the only answer to a duplicate is "done".
/// - Not enough: the effect is outside of the database (mail, payment). A rollback removes the key, and not the mail. Use the
///   executor with [steps](idempotent_core::step), or an idempotency key for the other system.
/// - Not enough: a duplicate needs the first answer, failed runs are counted and dead-lettered, or a duplicate must not wait.
///   Here a duplicate waits until the first transaction ends, and uses a connection meanwhile. Use
///   [`Inbox`](crate::Inbox), which answers at once.
/// - Not enough: updates that may overtake each other. A unique key stops the second copy of a message, and not an older
///   message that comes late: use [`VersionGuard`](crate::VersionGuard).
///
/// If the effect itself inserts a row with a unique column, no further table is necessary: use `INSERT … ON CONFLICT DO
/// NOTHING`, and check the number of written rows.
///
/// A lookup before the insert is no guard: two copies can look up the key before either inserts it
/// (see `tests/suite/server/insert_only.rs`).
///
/// ```no_run
/// # async fn example(pool: sqlx::PgPool) -> Result<(), Box<dyn std::error::Error>> {
/// use idempotent_core::{Identity, Scene};
/// use idempotent_sqlx::UniqueKeys;
///
/// let seen = UniqueKeys::new("seen_message")?;
/// seen.create(&mut *pool.acquire().await?).await?; // or in your own migration
///
/// let key = Identity::new(Scene::Mq, "book", "o-17").key("shop")?;
/// let mut tx = pool.begin().await?;
/// if seen.first_time(&mut *tx, &key).await? {
///     sqlx::query("INSERT INTO booking (number) VALUES ('o-17')").execute(&mut *tx).await?;
/// }
/// tx.commit().await?; // then acknowledge the message, the first time or not
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct UniqueKeys(Arc<[Texts; 3]>);

#[derive(Debug)]
struct Texts {
    create: Arc<str>,
    note: Arc<str>,
    purge: Arc<str>,
}

impl UniqueKeys {
    /// Creates a handle to the table of this name: `[a-z_][a-z0-9_]*` of at most 63 bytes, in the connection's search path or
    /// database.
    ///
    /// # Errors
    /// The name is invalid.
    pub fn new(table: &str) -> Result<Self, StoreError> {
        let table = Table::new(table)?;
        let (quoted, ticked) = (table.quoted(), table.quoted_by('`'));
        let made = |table: &str, id: &str| {
            format!("CREATE TABLE IF NOT EXISTS {table} (id {id} NOT NULL PRIMARY KEY, noted_at BIGINT NOT NULL)")
        };
        let noted = |id: &str, now: &str| {
            format!("INSERT INTO {quoted} (id,noted_at) VALUES ({id},{now}) ON CONFLICT (id) DO NOTHING")
        };
        let epoch = "extract(epoch FROM clock_timestamp())::bigint";
        let postgres = Texts {
            create: made(&quoted, "BYTEA").into(),
            note: noted("$1", epoch).into(),
            purge: format!(
                "DELETE FROM {quoted} WHERE id IN (SELECT id FROM {quoted} WHERE noted_at+$1<{epoch} LIMIT $2 \
                 FOR UPDATE SKIP LOCKED)"
            )
            .into(),
        };
        let sqlite = Texts {
            create: made(&quoted, "BLOB").into(),
            note: noted("?1", "unixepoch()").into(),
            purge: format!(
                "DELETE FROM {quoted} WHERE id IN (SELECT id FROM {quoted} WHERE noted_at+?1<unixepoch() LIMIT ?2)"
            )
            .into(),
        };
        let mysql = Texts {
            create: made(&ticked, "BINARY(16)").into(),
            // The only possible error of such a row is a duplicate key.
            note: format!("{LATEST}INSERT IGNORE INTO {ticked} (id,noted_at) VALUES (?,unix_timestamp())").into(),
            purge: format!("DELETE FROM {ticked} WHERE noted_at+?<unix_timestamp() LIMIT ?").into(),
        };
        Ok(Self(Arc::new([postgres, sqlite, mysql])))
    }

    /// Creates the table if it is missing. On MySQL, this statement commits an open transaction.
    ///
    /// # Errors
    /// The error of the database.
    ///
    /// # Cancellation
    /// The table may exist or not.
    pub async fn create<C: UniqueKeyConnection>(&self, connection: &mut C) -> Result<(), sqlx::Error> {
        connection.create(&self.texts::<C>().create).await
    }

    /// Records the key. Returns true if the key was new. This is one statement, usually the first of a transaction.
    ///
    /// If an open transaction has recorded the key, this method waits for its end. It returns false if that transaction commits,
    /// and true if it rolls back. The database limits the wait (`lock_timeout`, `innodb_lock_wait_timeout`, `busy_timeout`). In
    /// SQLite, use `BEGIN IMMEDIATE`, as for every transaction that writes.
    ///
    /// # Errors
    /// The error of the database, e.g. a lock timeout. On PostgreSQL above READ COMMITTED, a concurrent commit of the key is a
    /// serialization failure (40001). Roll back, and let the broker redeliver the message.
    ///
    /// # Cancellation
    /// The key may be recorded or not: roll back.
    pub async fn first_time<C: UniqueKeyConnection>(&self, connection: &mut C, key: &Key) -> Result<bool, sqlx::Error> {
        let rows = connection.note(&self.texts::<C>().note, key.hash().to_be_bytes()).await?;
        Ok(rows == 1)
    }

    /// Removes keys that are older than `age` (rounded up to the second) by the database's clock, up to a maximum number. Returns
    /// the number of removed keys. A later redelivery is treated as a new message, so `age` must exceed the longest time in which
    /// the broker redelivers. The statement scans the table: run it periodically, in a transaction of its own.
    ///
    /// # Errors
    /// The error of the database.
    ///
    /// # Cancellation
    /// The keys may be removed or not.
    pub async fn purge<C: UniqueKeyConnection>(
        &self,
        connection: &mut C,
        age: Duration,
        at_most: u32,
    ) -> Result<u64, sqlx::Error> {
        // Rounded up; and no sum of the database's may be too large.
        let seconds = age.as_secs().saturating_add(u64::from(age.subsec_nanos() > 0));
        let seconds = i64::try_from(seconds).unwrap_or(i64::MAX).min(i64::MAX >> 2);
        connection.purge(&self.texts::<C>().purge, seconds, at_most).await
    }

    fn texts<C: UniqueKeyConnection>(&self) -> &Texts {
        &self.0[C::PLACE]
    }
}

mod sealed {
    pub trait Sealed {}
}

/// A connection for [`UniqueKeys`]: `&mut *tx` of a transaction. This trait is sealed.
pub trait UniqueKeyConnection: sealed::Sealed + Send {
    #[doc(hidden)]
    const PLACE: usize;
    #[doc(hidden)]
    fn create(&mut self, sql: &Arc<str>) -> impl Future<Output = Result<(), sqlx::Error>> + Send;
    #[doc(hidden)]
    fn note(&mut self, sql: &Arc<str>, id: [u8; 16]) -> impl Future<Output = Result<u64, sqlx::Error>> + Send;
    #[doc(hidden)]
    fn purge(
        &mut self,
        sql: &Arc<str>,
        seconds: i64,
        at_most: u32,
    ) -> impl Future<Output = Result<u64, sqlx::Error>> + Send;
}

macro_rules! notes {
    ($($feature:literal $connection:ty, $place:literal;)+) => {$(
        #[cfg(feature = $feature)]
        impl sealed::Sealed for $connection {}

        #[cfg(feature = $feature)]
        impl UniqueKeyConnection for $connection {
            const PLACE: usize = $place;

            async fn create(&mut self, sql: &Arc<str>) -> Result<(), sqlx::Error> {
                sqlx::raw_sql(AssertSqlSafe(sql.clone())).execute(&mut *self).await.map(drop)
            }

            async fn note(&mut self, sql: &Arc<str>, id: [u8; 16]) -> Result<u64, sqlx::Error> {
                let note = sqlx::query(AssertSqlSafe(sql.clone())).bind(id.to_vec());
                Ok(note.execute(&mut *self).await?.rows_affected())
            }

            async fn purge(&mut self, sql: &Arc<str>, seconds: i64, at_most: u32) -> Result<u64, sqlx::Error> {
                let purge = sqlx::query(AssertSqlSafe(sql.clone())).bind(seconds).bind(i64::from(at_most));
                Ok(purge.execute(&mut *self).await?.rows_affected())
            }
        }
    )+};
}

// The index of the texts follows each entry.
notes! {
    "mysql" sqlx::MySqlConnection, 2;
    "postgres" sqlx::PgConnection, 0;
    "sqlite" sqlx::SqliteConnection, 1;
}
