//! SQL statements of writers, consumers and the judge for the tables of the play.
use std::collections::BTreeMap;
use std::future::Future;

use sqlx::{MySql, Postgres, QueryBuilder, Sqlite};

use super::AGGREGATES;
use crate::delivery::database::{Database, EFFECTS};

/// One statement each: MariaDB commits after each of them.
const TABLES: [&str; 4] = [
    "CREATE TABLE aggregates (name varchar(20) PRIMARY KEY, version bigint NOT NULL DEFAULT 0)",
    "CREATE TABLE written (id varchar(40) PRIMARY KEY, aggregate varchar(20) NOT NULL, version bigint NOT NULL, \
     poison boolean NOT NULL, void boolean NOT NULL DEFAULT false)",
    "CREATE TABLE unwanted (id varchar(40) PRIMARY KEY)",
    EFFECTS,
];

/// A message whose transaction has committed, by the writer's own table.
#[derive(Clone, Debug)]
pub(super) struct Written {
    pub(super) aggregate: String,
    /// Its place in the aggregate.
    pub(super) version: i64,
    /// Its handler always fails.
    pub(super) poison: bool,
    /// True if the message was cancelled.
    pub(super) void: bool,
}

/// The statements, each in the transaction or on the connection that it is given.
pub(super) trait Statements: Database {
    /// Creates the tables and the aggregates.
    fn make(connection: &mut Self::Connection) -> impl Future<Output = sqlx::Result<()>> + Send;

    /// Advances the version of an aggregate by this number of messages, and returns the previous version. The row
    /// stays locked until the transaction ends.
    fn advance(
        connection: &mut Self::Connection,
        aggregate: &str,
        messages: i64,
    ) -> impl Future<Output = sqlx::Result<i64>> + Send;

    fn write(
        connection: &mut Self::Connection,
        id: &str,
        written: &Written,
    ) -> impl Future<Output = sqlx::Result<()>> + Send;

    fn write_unwanted(connection: &mut Self::Connection, id: &str) -> impl Future<Output = sqlx::Result<()>> + Send;

    fn call_off(connection: &mut Self::Connection, id: &str) -> impl Future<Output = sqlx::Result<()>> + Send;

    /// Returns all committed messages by id.
    fn written(
        connection: &mut Self::Connection,
    ) -> impl Future<Output = sqlx::Result<BTreeMap<String, Written>>> + Send;

    /// Returns the ids of the messages without a receiver.
    fn unwanted(connection: &mut Self::Connection) -> impl Future<Output = sqlx::Result<Vec<String>>> + Send;
}

/// Executes a statement that consists of texts and values, and returns its result.
macro_rules! execute {
    ($db:ty, $connection:expr, $first:expr $(, $value:expr, $text:literal)*) => {{
        let mut query = QueryBuilder::<$db>::new($first);
        $(query.push_bind($value).push($text);)*
        query.build().execute($connection).await
    }};
}

macro_rules! statements {
    ($($db:ty),+) => {$(
        impl Statements for $db {
            async fn make(connection: &mut Self::Connection) -> sqlx::Result<()> {
                for table in TABLES {
                    sqlx::query(table).execute(&mut *connection).await?;
                }
                for number in 0..AGGREGATES {
                    let name = format!("a{number}");
                    execute!($db, &mut *connection, "INSERT INTO aggregates (name) VALUES (", name, ")")?;
                }
                Ok(())
            }

            async fn advance(connection: &mut Self::Connection, aggregate: &str, messages: i64) -> sqlx::Result<i64> {
                // The row is locked until the end of the transaction, so transactions of an aggregate run in order.
                let lock = &mut *connection;
                execute!($db, lock, "UPDATE aggregates SET version = version + ", messages, " WHERE name = ", aggregate, "")?;
                let mut query = QueryBuilder::<$db>::new("SELECT version FROM aggregates WHERE name = ");
                query.push_bind(aggregate);
                let version: i64 = query.build_query_scalar().fetch_one(connection).await?;
                Ok(version - messages)
            }

            async fn write(connection: &mut Self::Connection, id: &str, written: &Written) -> sqlx::Result<()> {
                let Written { aggregate, version, poison, .. } = written;
                let insert = "INSERT INTO written (id, aggregate, version, poison) VALUES (";
                execute!(
                    $db, connection, insert, id, ", ", aggregate, ", ", *version, ", ", *poison, ")"
                ).map(drop)
            }

            async fn write_unwanted(connection: &mut Self::Connection, id: &str) -> sqlx::Result<()> {
                execute!($db, connection, "INSERT INTO unwanted (id) VALUES (", id, ")").map(drop)
            }

            async fn call_off(connection: &mut Self::Connection, id: &str) -> sqlx::Result<()> {
                execute!($db, connection, "UPDATE written SET void = true WHERE id = ", id, "").map(drop)
            }

            async fn written(connection: &mut Self::Connection) -> sqlx::Result<BTreeMap<String, Written>> {
                let rows = sqlx::query_as("SELECT id, aggregate, version, poison, void FROM written");
                let rows: Vec<(String, String, i64, bool, bool)> = rows.fetch_all(connection).await?;
                let written = |(id, aggregate, version, poison, void)| (id, Written { aggregate, version, poison, void });
                Ok(rows.into_iter().map(written).collect())
            }

            async fn unwanted(connection: &mut Self::Connection) -> sqlx::Result<Vec<String>> {
                sqlx::query_scalar("SELECT id FROM unwanted").fetch_all(connection).await
            }
        }
    )+};
}
statements!(MySql, Postgres, Sqlite);
