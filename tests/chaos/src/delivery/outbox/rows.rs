//! The tables, and what they hold at the end.
use std::collections::BTreeMap;

use anyhow::Context;
use idempotent::PostgresStore;
use idempotent::outbox::{Outbox, Status};
use idempotent_testkit::servers::PostgresServer;
use sqlx::{Connection, PgConnection};

use super::{AGGREGATES, pool};

const TABLES: &str = "\
CREATE TABLE aggregates (name text PRIMARY KEY, version bigint NOT NULL DEFAULT 0);
CREATE TABLE written (id text PRIMARY KEY, aggregate text NOT NULL, version bigint NOT NULL, poison boolean NOT NULL,
                      void boolean NOT NULL DEFAULT false);
CREATE TABLE effects (seq bigserial PRIMARY KEY, id text NOT NULL);";

/// A message whose transaction has committed, by the writer's own table.
#[derive(Clone, Debug)]
pub(super) struct Written {
    pub(super) aggregate: String,
    pub(super) version: i64,
    pub(super) poison: bool,
    pub(super) void: bool,
}

/// What there is once all has come to rest.
#[derive(Clone, Debug, Default)]
pub(super) struct Left {
    pub(super) written: BTreeMap<String, Written>,
    pub(super) effects: Vec<String>,
    pub(super) stubs: BTreeMap<String, Status>,
}

pub(super) async fn make(database: &PostgresServer) -> anyhow::Result<()> {
    PostgresStore::builder(database.url()).create(true).open().await?;
    Outbox::builder(pool(&database.url())?).create(true).open().await?;
    database.psql("postgres", TABLES);
    for number in 0..AGGREGATES {
        database.psql("postgres", &format!("INSERT INTO aggregates (name) VALUES ('a{number}')"));
    }
    Ok(())
}

pub(super) async fn left(database: &PostgresServer, outbox: &Outbox<sqlx::Postgres>) -> anyhow::Result<Left> {
    let mut connection = PgConnection::connect(&database.url()).await.context("the database is gone")?;
    let written: Vec<(String, String, i64, bool, bool)> =
        sqlx::query_as("SELECT id, aggregate, version, poison, void FROM written").fetch_all(&mut connection).await?;
    let written = written
        .into_iter()
        .map(|(id, aggregate, version, poison, void)| (id, Written { aggregate, version, poison, void }))
        .collect();
    let effects = sqlx::query_scalar("SELECT id FROM effects ORDER BY seq").fetch_all(&mut connection).await?;
    let mut stubs = BTreeMap::new();
    for status in [Status::Unconfirmed, Status::Confirmed, Status::Void, Status::Dead] {
        let mut behind = 0;
        loop {
            let page = outbox.list(status, behind, 1_000).await?;
            let Some(last) = page.last() else { break };
            behind = last.stub.seq;
            stubs.extend(page.into_iter().map(|entry| (entry.id, status)));
        }
    }
    Ok(Left { written, effects, stubs })
}
