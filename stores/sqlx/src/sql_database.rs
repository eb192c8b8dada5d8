//! The interface of a database for migrations, the outbox and the delay table: statements with values, and rows of numbers and bytes.
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use sqlx::{AssertSqlSafe, Database, Row};

use crate::table::Table;

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

impl SqlDialect {
    /// Returns the current time in µs, constant within a statement and never ahead of the clock. The argument overrides the
    /// database's clock.
    pub(crate) fn now(self) -> &'static str {
        match self {
            // A value that changes within a statement, such as `clock_timestamp()`, is compared with each row and
            // never uses an index.
            Self::Postgres => "coalesce(?,(extract(epoch FROM statement_timestamp())*1000000)::bigint)",
            Self::MySql => "coalesce(?,TIMESTAMPDIFF(MICROSECOND,'1970-01-01',UTC_TIMESTAMP(6)))",
            Self::Sqlite => "coalesce(?,CAST(round(unixepoch('now','subsec')*1000) AS INTEGER)*1000)",
        }
    }

    /// Returns the statement with the placeholders of the dialect instead of question marks.
    pub(crate) fn numbered(self, text: String) -> String {
        if self != Self::Postgres {
            return text;
        }
        let mut parts = text.split('?');
        let first = parts.next().unwrap_or_default().to_owned();
        parts.enumerate().fold(first, |numbered, (at, part)| format!("{numbered}${}{part}", at + 1))
    }
}

/// A value of a statement.
#[derive(Clone, Debug)]
pub enum SqlValue {
    /// A number.
    Int(Option<i64>),
    /// Bytes.
    Bytes(Option<Vec<u8>>),
}

impl SqlValue {
    /// Returns the size of the value in bytes.
    #[cfg(any(feature = "mysql", feature = "postgres"))]
    pub(crate) fn size(&self) -> usize {
        match self {
            Self::Int(_) => size_of::<i64>(),
            Self::Bytes(bytes) => bytes.as_ref().map_or(0, Vec::len),
        }
    }
}

/// Converts numbers, bytes and their options. Text is bound as bytes, because it may contain characters that a database rejects in
/// text.
macro_rules! sql_values {
    ($($kind:ident from $type:ty;)+) => {$(
        impl From<$type> for SqlValue {
            fn from(value: $type) -> Self {
                Self::$kind(Some(value.into()))
            }
        }

        impl From<Option<$type>> for SqlValue {
            fn from(value: Option<$type>) -> Self {
                Self::$kind(value.map(Into::into))
            }
        }
    )+};
}

sql_values! {
    Int from i64;
    Bytes from Vec<u8>;
    Bytes from &[u8];
    Bytes from &str;
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

/// The SQL texts of a dialect about tables and applied migrations.
///
/// `{name}` is the name of a table, `{schema}` an expression for the schemas in which it is looked for, and `{columns}` a list of names.
#[derive(Clone, Copy, Debug)]
pub struct CatalogSql {
    /// The columns of the table of applied migrations, and the table's options.
    pub(crate) columns: &'static str,
    /// Columns and values of a row, with the placeholders `{version}` and `{checksum}` (in hexadecimal).
    pub(crate) row: &'static str,
    /// The expression for the schemas of a table without a schema.
    pub(crate) current_schemas: &'static str,
    /// Counts the tables of this name.
    pub(crate) count_tables: &'static str,
    /// Counts the columns with these names.
    pub(crate) count_columns: &'static str,
}

impl CatalogSql {
    /// Replaces the placeholders of a text about a table.
    pub(crate) fn about(&self, text: &str, table: &Table, name: &str) -> String {
        let schema = table.schema().map(|schema| format!("'{}'", schema.replace('\'', "''")));
        text.replace("{name}", name).replace("{schema}", schema.as_deref().unwrap_or(self.current_schemas))
    }
}

pub trait Sealed {}

/// A database that executes statements. It is public only because public traits refer to it.
pub trait SqlDatabase: Database + Sealed {
    #[doc(hidden)]
    const DIALECT: SqlDialect;
    #[doc(hidden)]
    const CATALOG: CatalogSql;

    /// Executes statements without values.
    #[doc(hidden)]
    fn execute_text(
        connection: &mut Self::Connection,
        sql: String,
    ) -> impl Future<Output = Result<(), sqlx::Error>> + Send;

    #[doc(hidden)]
    fn execute(
        connection: &mut Self::Connection,
        sql: Arc<str>,
        args: Vec<SqlValue>,
    ) -> impl Future<Output = Result<u64, sqlx::Error>> + Send;

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
    ($($feature:literal $db:ty, $kind:ident, $module:ident;)+) => {$(
        #[cfg(feature = $feature)]
        impl Sealed for $db {}

        #[cfg(feature = $feature)]
        impl SqlDatabase for $db {
            const DIALECT: SqlDialect = SqlDialect::$kind;
            const CATALOG: CatalogSql = crate::$module::migrate::CATALOG;

            async fn execute_text(connection: &mut Self::Connection, sql: String) -> Result<(), sqlx::Error> {
                sqlx::raw_sql(AssertSqlSafe(sql)).execute(connection).await.map(drop)
            }

            async fn execute(
                connection: &mut Self::Connection,
                sql: Arc<str>,
                args: Vec<SqlValue>,
            ) -> Result<u64, sqlx::Error> {
                let query = args.into_iter().fold(sqlx::query::<Self>(AssertSqlSafe(sql)), |query, arg| match arg {
                    SqlValue::Int(number) => query.bind(number),
                    SqlValue::Bytes(bytes) => query.bind(bytes),
                });
                Ok(query.execute(connection).await?.rows_affected())
            }

            async fn fetch(
                connection: &mut Self::Connection,
                sql: Arc<str>,
                args: Vec<SqlValue>,
                shape: &'static str,
            ) -> Result<Vec<RowValues>, sqlx::Error> {
                let query = args.into_iter().fold(sqlx::query::<Self>(AssertSqlSafe(sql)), |query, arg| match arg {
                    SqlValue::Int(number) => query.bind(number),
                    SqlValue::Bytes(bytes) => query.bind(bytes),
                });
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
    "mysql" sqlx::MySql, MySql, mysql;
    "postgres" sqlx::Postgres, Postgres, postgres;
    "sqlite" sqlx::Sqlite, Sqlite, sqlite;
}
