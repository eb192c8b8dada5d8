//! SQL statements of writers, consumers and the judge for the tables of the play.
use std::collections::BTreeMap;
use std::future::Future;

use idempotent::outbox::OutboxDb;
use sqlx::{Postgres, Sqlite};

use super::AGGREGATES;

const TABLES: &str = "\
CREATE TABLE aggregates (name text PRIMARY KEY, version bigint NOT NULL DEFAULT 0);
CREATE TABLE written (id text PRIMARY KEY, aggregate text NOT NULL, version bigint NOT NULL, poison boolean NOT NULL,
                      void boolean NOT NULL DEFAULT false);
CREATE TABLE unwanted (id text PRIMARY KEY);
CREATE TABLE effects (id text NOT NULL);";
const AGGREGATE: &str = "INSERT INTO aggregates (name) VALUES ($1)";
/// The row is ours until the commit: of two transactions of one aggregate one is the first.
const ADVANCE: &str = "UPDATE aggregates SET version = version + $2 WHERE name = $1 RETURNING version";
const WRITE: &str = "INSERT INTO written (id, aggregate, version, poison) VALUES ($1, $2, $3, $4)";
const WRITE_UNWANTED: &str = "INSERT INTO unwanted (id) VALUES ($1)";
const CALL_OFF: &str = "UPDATE written SET void = true WHERE id = $1";
const EFFECT: &str = "INSERT INTO effects (id) VALUES ($1)";

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
pub(super) trait Statements: OutboxDb {
    /// The tables, and the aggregates.
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

    fn effect(connection: &mut Self::Connection, id: &str) -> impl Future<Output = sqlx::Result<()>> + Send;

    /// All that was written, by id.
    fn written(
        connection: &mut Self::Connection,
    ) -> impl Future<Output = sqlx::Result<BTreeMap<String, Written>>> + Send;

    /// Returns the ids of the messages without a receiver, and those of the effects.
    fn rest(connection: &mut Self::Connection) -> impl Future<Output = sqlx::Result<[Vec<String>; 2]>> + Send;
}

macro_rules! statements {
    ($($db:ty),+) => {$(
        impl Statements for $db {
            async fn make(connection: &mut Self::Connection) -> sqlx::Result<()> {
                sqlx::raw_sql(TABLES).execute(&mut *connection).await?;
                for number in 0..AGGREGATES {
                    sqlx::query(AGGREGATE).bind(format!("a{number}")).execute(&mut *connection).await?;
                }
                Ok(())
            }

            async fn advance(connection: &mut Self::Connection, aggregate: &str, messages: i64) -> sqlx::Result<i64> {
                let advance = sqlx::query_scalar(ADVANCE).bind(aggregate).bind(messages);
                advance.fetch_one(connection).await.map(|version: i64| version - messages)
            }

            async fn write(connection: &mut Self::Connection, id: &str, written: &Written) -> sqlx::Result<()> {
                let Written { aggregate, version, poison, .. } = written;
                let write = sqlx::query(WRITE).bind(id).bind(aggregate).bind(version).bind(poison);
                write.execute(connection).await.map(drop)
            }

            async fn write_unwanted(connection: &mut Self::Connection, id: &str) -> sqlx::Result<()> {
                sqlx::query(WRITE_UNWANTED).bind(id).execute(connection).await.map(drop)
            }

            async fn call_off(connection: &mut Self::Connection, id: &str) -> sqlx::Result<()> {
                sqlx::query(CALL_OFF).bind(id).execute(connection).await.map(drop)
            }

            async fn effect(connection: &mut Self::Connection, id: &str) -> sqlx::Result<()> {
                sqlx::query(EFFECT).bind(id).execute(connection).await.map(drop)
            }

            async fn written(connection: &mut Self::Connection) -> sqlx::Result<BTreeMap<String, Written>> {
                let rows = sqlx::query_as("SELECT id, aggregate, version, poison, void FROM written");
                let rows: Vec<(String, String, i64, bool, bool)> = rows.fetch_all(connection).await?;
                let written = |(id, aggregate, version, poison, void)| (id, Written { aggregate, version, poison, void });
                Ok(rows.into_iter().map(written).collect())
            }

            async fn rest(connection: &mut Self::Connection) -> sqlx::Result<[Vec<String>; 2]> {
                let unwanted = sqlx::query_scalar("SELECT id FROM unwanted").fetch_all(&mut *connection).await?;
                let effects = sqlx::query_scalar("SELECT id FROM effects").fetch_all(connection).await?;
                Ok([unwanted, effects])
            }
        }
    )+};
}
statements!(Postgres, Sqlite);
