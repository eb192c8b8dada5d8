//! The insert-only inbox: a key is noted in the transaction of its effect, by a column that is unique.
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use idempotent_core::{Key, StoreError};
use sqlx::AssertSqlSafe;

use crate::table::Table;

/// Notes each key once, by one `INSERT` in a transaction of yours: who notes it first goes on, and everybody else has come
/// too late. The least that makes a handler idempotent.
///
/// The note and the effect commit together or not at all (level L3), and a rollback takes the note with it. Note first,
/// and make the effect only where it was [the first time](Self::first_time).
///
/// # When it is enough
/// - Enough: the whole effect is rows of this database, and a duplicate has nothing to be told but "done".
/// - Not enough: the effect is elsewhere (mail, payment): the note is rolled back, the mail is not. Use the executor, and
///   [steps](idempotent_core::step) or a key for the far side.
/// - Not enough: a duplicate is to get the first answer, failed runs are to be counted and put aside, or a duplicate must not
///   wait: with this one it waits until the first transaction ends, and takes a connection to do so. Use
///   [`Inbox`](crate::Inbox), which answers at once.
/// - Not enough: updates that may overtake each other. A unique key stops the second copy of a message, and not an older
///   message that comes late: use [`VersionGuard`](crate::VersionGuard).
///
/// Where the effect itself inserts a row with a unique column of yours, that column is such a note already: `INSERT … ON
/// CONFLICT DO NOTHING`, and look at how many rows it wrote.
///
/// To look first, and to insert then, is no guard: two copies look before either has inserted
/// (`tests/suite/server/unique.rs`, `s0_10_…`).
///
/// ```no_run
/// # async fn example(pool: sqlx::PgPool) -> Result<(), Box<dyn std::error::Error>> {
/// use idempotent_core::{Identity, Scene};
/// use idempotent_sqlx::UniqueKeys;
///
/// let seen = UniqueKeys::new("seen_message")?;
/// seen.create(&mut *pool.acquire().await?).await?; // or by a migration of yours
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
    /// With its keys in this table: `[a-z_][a-z0-9_]*` of at most 63 bytes, in the connection's search path or database.
    ///
    /// # Errors
    /// If that is no name.
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
            // Nothing else than a key that is there can be wrong with such a row.
            note: format!("INSERT IGNORE INTO {ticked} (id,noted_at) VALUES (?,unix_timestamp())").into(),
            purge: format!("DELETE FROM {ticked} WHERE noted_at+?<unix_timestamp() LIMIT ?").into(),
        };
        Ok(Self(Arc::new([postgres, sqlite, mysql])))
    }

    /// Makes the table, if it is not there. On MySQL this commits the transaction it stands in.
    ///
    /// # Errors
    /// The database's.
    ///
    /// # Cancellation
    /// It may be made or not.
    pub async fn create<C: UniqueKeyConnection>(&self, connection: &mut C) -> Result<(), sqlx::Error> {
        connection.create(&self.texts::<C>().create).await
    }

    /// Notes the key; whether nobody had. One statement, and the first of a transaction as a rule.
    ///
    /// While another transaction that has noted it is open, this waits: `false` once that commits, `true` once it rolls
    /// back. How long it waits is the database's to say (`lock_timeout`, `innodb_lock_wait_timeout`, `busy_timeout`). In
    /// SQLite begin by `BEGIN IMMEDIATE`, as for each transaction that writes.
    ///
    /// # Errors
    /// The database's: a wait that took too long, or, above READ COMMITTED on PostgreSQL, that another one has just committed
    /// the key (40001). Roll back, and let the message come again.
    ///
    /// # Cancellation
    /// It may be noted or not: roll back.
    pub async fn first_time<C: UniqueKeyConnection>(&self, connection: &mut C, key: &Key) -> Result<bool, sqlx::Error> {
        let rows = connection.note(&self.texts::<C>().note, key.hash().to_be_bytes()).await?;
        Ok(rows == 1)
    }

    /// Removes at most so many keys that were noted longer ago than `age` (rounded up to the second), by the
    /// database's clock; how many. A message that comes again after that is taken for a new one, so `age` has to be longer than any broker redelivers.
    /// It looks through the table: run it now and then, in a transaction of its own.
    ///
    /// # Errors
    /// The database's.
    ///
    /// # Cancellation
    /// They may be removed or not.
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

/// A connection that [`UniqueKeys`] work on: `&mut *tx` of a transaction. Not to be implemented elsewhere.
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

// The place of its texts behind each.
notes! {
    "mysql" sqlx::MySqlConnection, 2;
    "postgres" sqlx::PgConnection, 0;
    "sqlite" sqlx::SqliteConnection, 1;
}
