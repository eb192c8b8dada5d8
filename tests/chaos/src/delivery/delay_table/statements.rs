//! SQL statements for the tables of the play.
use std::future::Future;

use idempotent::Timestamp;
use sqlx::{MySql, Postgres, QueryBuilder, Sqlite};

use crate::delivery::database::{Database, EFFECTS};

const TABLES: [&str; 2] = [
    "CREATE TABLE tasks (id varchar(40) PRIMARY KEY, due bigint NOT NULL, poison boolean NOT NULL, \
     bound boolean NOT NULL)",
    EFFECTS,
];

/// A row of the producer's table.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Task {
    pub(super) id: String,
    pub(super) due: Timestamp,
    /// True if the handler always fails.
    pub(super) poison: bool,
    /// True if the task was scheduled in the transaction of this row.
    pub(super) bound: bool,
}

/// The statements, each on the connection or in the transaction that the caller passes.
pub(super) trait TaskTables: Database {
    /// Creates the tables.
    fn make(connection: &mut Self::Connection) -> impl Future<Output = sqlx::Result<()>> + Send;

    /// Writes the row of a task.
    fn write(connection: &mut Self::Connection, task: &Task) -> impl Future<Output = sqlx::Result<()>> + Send;

    /// Returns all rows of tasks.
    fn tasks(connection: &mut Self::Connection) -> impl Future<Output = sqlx::Result<Vec<Task>>> + Send;
}

macro_rules! task_tables {
    ($($db:ty),+) => {$(
        impl TaskTables for $db {
            async fn make(connection: &mut Self::Connection) -> sqlx::Result<()> {
                for table in TABLES {
                    sqlx::query(table).execute(&mut *connection).await?;
                }
                Ok(())
            }

            async fn write(connection: &mut Self::Connection, task: &Task) -> sqlx::Result<()> {
                let mut insert = QueryBuilder::<$db>::new("INSERT INTO tasks (id, due, poison, bound) VALUES (");
                let mut values = insert.separated(", ");
                values.push_bind(&*task.id).push_bind(task.due.0.cast_signed());
                values.push_bind(task.poison).push_bind(task.bound).push_unseparated(")");
                insert.build().execute(connection).await.map(drop)
            }

            async fn tasks(connection: &mut Self::Connection) -> sqlx::Result<Vec<Task>> {
                let rows = sqlx::query_as("SELECT id, due, poison, bound FROM tasks");
                let rows: Vec<(String, i64, bool, bool)> = rows.fetch_all(connection).await?;
                let task = |(id, due, poison, bound): (_, i64, _, _)| {
                    Task { id, due: Timestamp(due.cast_unsigned()), poison, bound }
                };
                Ok(rows.into_iter().map(task).collect())
            }
        }
    )+};
}
task_tables!(MySql, Postgres, Sqlite);
