//! The interface of a database for the outbox and the delay table: statements with values, and rows of numbers and bytes.
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use sqlx::error::DatabaseError;
use sqlx::pool::PoolConnection;
use sqlx::{AssertSqlSafe, Database, Pool, Row};

/// The dialect of a database.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum SqlDialect {
    /// PostgreSQL: parameters such as `$1`, RETURNING, and SKIP LOCKED.
    Postgres,
    /// MySQL and MariaDB: no `UPDATE … RETURNING`.
    MySql,
    /// SQLite: one writer at a time.
    Sqlite,
}

/// A value of a statement.
#[derive(Clone, Debug)]
pub enum SqlValue {
    /// A number.
    Int(Option<i64>),
    /// Bytes.
    Bytes(Option<Vec<u8>>),
}

impl From<i64> for SqlValue {
    fn from(number: i64) -> Self {
        Self::Int(Some(number))
    }
}

impl From<Option<i64>> for SqlValue {
    fn from(number: Option<i64>) -> Self {
        Self::Int(number)
    }
}

impl From<&[u8]> for SqlValue {
    fn from(bytes: &[u8]) -> Self {
        Self::Bytes(Some(bytes.to_vec()))
    }
}

impl From<Option<&[u8]>> for SqlValue {
    fn from(bytes: Option<&[u8]>) -> Self {
        Self::Bytes(bytes.map(<[u8]>::to_vec))
    }
}

/// A row, read from left to right.
#[derive(Debug)]
pub struct RowValues(std::vec::IntoIter<SqlValue>);

impl RowValues {
    /// Returns the next number, or 0 for null.
    pub(crate) fn int(&mut self) -> i64 {
        self.int_or_null().unwrap_or_default()
    }

    pub(crate) fn int_or_null(&mut self) -> Option<i64> {
        match self.0.next() {
            Some(SqlValue::Int(number)) => number,
            _ => None,
        }
    }

    /// Returns the next bytes, or no bytes for null.
    pub(crate) fn bytes(&mut self) -> Vec<u8> {
        self.bytes_or_null().unwrap_or_default()
    }

    pub(crate) fn bytes_or_null(&mut self) -> Option<Vec<u8>> {
        match self.0.next() {
            Some(SqlValue::Bytes(bytes)) => bytes,
            _ => None,
        }
    }

    /// Returns the next text that was written as text.
    pub(crate) fn text(&mut self) -> String {
        String::from_utf8_lossy(&self.bytes()).into_owned()
    }

    pub(crate) fn text_or_null(&mut self) -> Option<String> {
        self.bytes_or_null().map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
    }
}

/// Converts a duration to µs for a statement. The sum with the current time must not overflow either.
pub(crate) fn micros(time: Duration) -> i64 {
    i64::try_from(time.as_micros()).unwrap_or(i64::MAX).min(i64::MAX >> 2)
}

pub trait Sealed {}

/// A database that executes statements. It is public only because public traits refer to it.
pub trait SqlDatabase: Database + Sealed {
    #[doc(hidden)]
    const DIALECT: SqlDialect;

    #[doc(hidden)]
    fn execute(
        connection: &mut Self::Connection,
        sql: Arc<str>,
        args: Vec<SqlValue>,
    ) -> impl Future<Output = Result<u64, sqlx::Error>> + Send;

    /// Closes the connection and the idle ones of its pool, if the error shows that their server takes no writes.
    #[doc(hidden)]
    fn close_refused(pool: &Pool<Self>, connection: &mut PoolConnection<Self>, error: &dyn DatabaseError);

    /// Executes a statement. `shape` has an `i` for each column of numbers, and a `b` for each column of bytes.
    #[doc(hidden)]
    fn fetch(
        connection: &mut Self::Connection,
        sql: Arc<str>,
        args: Vec<SqlValue>,
        shape: &'static str,
    ) -> impl Future<Output = Result<Vec<RowValues>, sqlx::Error>> + Send;
}

macro_rules! sql_databases {
    ($($feature:literal $db:ty, $kind:ident, $close_refused:expr;)+) => {$(
        #[cfg(feature = $feature)]
        impl Sealed for $db {}

        #[cfg(feature = $feature)]
        impl SqlDatabase for $db {
            const DIALECT: SqlDialect = SqlDialect::$kind;

            fn close_refused(pool: &Pool<Self>, connection: &mut PoolConnection<Self>, error: &dyn DatabaseError) {
                $close_refused(pool, connection, error);
            }

            async fn execute(
                connection: &mut Self::Connection,
                sql: Arc<str>,
                args: Vec<SqlValue>,
            ) -> Result<u64, sqlx::Error> {
                let mut query = sqlx::query::<Self>(AssertSqlSafe(sql));
                for arg in args {
                    query = match arg {
                        SqlValue::Int(number) => query.bind(number),
                        SqlValue::Bytes(bytes) => query.bind(bytes),
                    };
                }
                Ok(query.execute(connection).await?.rows_affected())
            }

            async fn fetch(
                connection: &mut Self::Connection,
                sql: Arc<str>,
                args: Vec<SqlValue>,
                shape: &'static str,
            ) -> Result<Vec<RowValues>, sqlx::Error> {
                let mut query = sqlx::query::<Self>(AssertSqlSafe(sql));
                for arg in args {
                    query = match arg {
                        SqlValue::Int(number) => query.bind(number),
                        SqlValue::Bytes(bytes) => query.bind(bytes),
                    };
                }
                let rows = query.fetch_all(connection).await?;
                rows.iter()
                    .map(|row| {
                        let cell = |(at, kind): (usize, char)| match kind {
                            'i' => row.try_get(at).map(SqlValue::Int),
                            _ => row.try_get(at).map(SqlValue::Bytes),
                        };
                        let cells = shape.chars().enumerate().map(cell).collect::<Result<Vec<_>, _>>()?;
                        Ok(RowValues(cells.into_iter()))
                    })
                    .collect()
            }
        }
    )+};
}

sql_databases! {
    "mysql" sqlx::MySql, MySql, crate::server::close_refused::<crate::mysql::MySqlDialect>;
    "postgres" sqlx::Postgres, Postgres, crate::server::close_refused::<crate::postgres::PostgresDialect>;
    // A file stays the same for all connections.
    "sqlite" sqlx::Sqlite, Sqlite, |_: &Pool<Self>, _: &mut PoolConnection<Self>, _: &dyn DatabaseError| ();
}

/// An error of [`on_connection`].
pub(crate) struct PoolError {
    /// True if a statement may have been executed.
    #[cfg_attr(not(feature = "delay"), allow(dead_code, reason = "an outbox does not distinguish"))]
    pub(crate) sent: bool,
    pub(crate) error: sqlx::Error,
}

/// Runs statements on a connection of the pool. If its server takes no writes, as a demoted primary does, the connection and the idle
/// ones are closed, so that the next ones follow the address.
///
/// # Errors
/// No connection, or the error of a statement.
pub(crate) async fn on_connection<Db: SqlDatabase, T>(
    pool: &Pool<Db>,
    run: impl AsyncFnOnce(&mut Db::Connection) -> Result<T, sqlx::Error>,
) -> Result<T, PoolError> {
    let mut connection = pool.acquire().await.map_err(|error| PoolError { sent: false, error })?;
    let done = run(&mut connection).await;
    if let Err(sqlx::Error::Database(refused)) = &done {
        Db::close_refused(pool, &mut connection, &**refused);
    }
    done.map_err(|error| PoolError { sent: true, error })
}
