//! The parts of the inbox tests that differ on PostgreSQL.
use std::time::Duration;

use idempotent_core::{Claim, StoreErrorKind};
use sqlx::postgres::PgPoolOptions;
use sqlx::{AssertSqlSafe, PgPool};

use super::commits::{proxied, run};
use super::fixture::Place;
use super::world::{Own, Tx, World};
use crate::inbox::{Failure, call, request};

/// One that is there twice fails at the commit, and not before.
pub(super) const EFFECTS: &str =
    "CREATE TABLE effects (name text NOT NULL, UNIQUE (name) DEFERRABLE INITIALLY DEFERRED)";
pub(super) const INSERT: &str = "INSERT INTO effects(name) VALUES ($1)";

/// Statements that end the transaction in which they are executed.
pub(super) const ENDING: &[&str] = &[
    "COMMIT",
    "END",
    "COMMIT AND CHAIN",
    "COMMIT; BEGIN; SAVEPOINT idempotent_run",
    "ROLLBACK",
    "ROLLBACK AND CHAIN",
    "ROLLBACK; BEGIN; SET LOCAL idempotent.run = 'idempotent_run'",
];
/// Statements that leave the transaction as it is, although they end it on other databases.
pub(super) const LASTING: &[&str] = &[
    "SELECT 1",
    "BEGIN",
    "SAVEPOINT idempotent_run",
    "SAVEPOINT x; ROLLBACK TO x; RELEASE x",
    "TRUNCATE TABLE effects_staging",
    "CREATE TABLE IF NOT EXISTS effects_staging (id int)",
    "ALTER TABLE effects_staging ADD COLUMN IF NOT EXISTS other int",
    "ANALYZE effects_staging",
    "LOCK TABLE effects_staging",
    "SET LOCAL lock_timeout = 1000",
];

/// Statements that change a session, and whether its connection is used again.
pub(super) const CHANGES: &[(&str, bool)] = &[
    ("SELECT 1", true),
    ("SET LOCAL search_path TO effects_tenant, public", true),
    ("SET LOCAL lock_timeout = 12345", true),
    ("SELECT pg_advisory_lock(4711)", true),
    ("SET search_path TO effects_tenant, public", false),
    ("SET default_transaction_read_only = on", false),
    ("SET default_transaction_isolation = 'serializable'", false),
    ("SET statement_timeout = 12345", false),
    ("SET TIME ZONE 'UTC+3'", false),
];
/// The settings and locks of a session.
pub(super) const STATE: &str = "SELECT concat_ws('|',current_user,current_setting('search_path'),\
    current_setting('default_transaction_read_only'),current_setting('transaction_isolation'),\
    current_setting('statement_timeout'),current_setting('TimeZone'),\
    (SELECT count(*) FROM pg_locks WHERE locktype='advisory' AND pid=pg_backend_pid() AND objid=4711))";

/// Returns the statement that creates a schema of a tenant.
pub(super) fn tenant() -> String {
    "CREATE SCHEMA effects_tenant".to_owned()
}

/// Returns the number of the connection.
pub(super) async fn connection_of(tx: &mut Tx) -> Option<i64> {
    sqlx::query_scalar("SELECT pg_backend_pid()::bigint").fetch_one(&mut **tx).await.ok()
}

pub(super) fn begin(level: &str) -> String {
    format!("BEGIN ISOLATION LEVEL {level}")
}

pub(super) async fn at_level(level: &str) -> World {
    let mut place = Place::new();
    let level = level.replace(' ', "%5C%20");
    place.url = format!("{}?options=-c%20default_transaction_isolation%3D{level}", place.url);
    World::at(place, 16).await
}

/// Ends the connection of this transaction.
pub(super) async fn end_connection(tx: &mut Tx, other: &PgPool) {
    let own: i32 = sqlx::query_scalar("SELECT pg_backend_pid()").fetch_one(&mut **tx).await.unwrap();
    sqlx::query("SELECT pg_terminate_backend($1)").bind(own).execute(other).await.unwrap();
}

/// Sends a statement that fails: from here on the server answers a COMMIT by a rollback.
pub(super) async fn spoil(_: &World, tx: &mut Tx) {
    sqlx::query("SELECT 1 / 0").execute(&mut **tx).await.unwrap_err();
}

#[tokio::test]
async fn a_claim_that_could_not_see_a_grant_asks_for_the_transaction_to_be_run_again() {
    for level in ["REPEATABLE READ", "SERIALIZABLE"] {
        let world = World::new().await;
        let pool = PgPool::connect(&world.place.url).await.unwrap();
        let mut late = pool.begin_with(AssertSqlSafe(begin(level))).await.unwrap();
        // What it sees is fixed here: the claim does not come first.
        sqlx::query("SELECT 1 FROM pg_class").fetch_all(&mut *late).await.unwrap();
        world
            .inbox
            .run(call("a"), async |mut tx: Own| Ok::<_, Failure>(world.effect(&mut tx, "a").await?))
            .await
            .unwrap();
        let error = world.store.claim_in(&mut late, &request("a")).await.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::RolledBack, "{error}");
        assert!(error.to_string().contains("run the whole transaction again"), "{error}");
        late.rollback().await.unwrap();
        let mut again = pool.begin().await.unwrap();
        let claim = world.store.claim_in(&mut again, &request("a")).await.unwrap();
        assert!(matches!(claim, Claim::Consumed(_)));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_costs_one_trip_more_than_its_transaction() {
    let (proxy, place) = proxied().await;
    let world = World::at(place, 1).await;
    for name in ["warm", "warmer"] {
        run(&world, false, name).await.0.unwrap();
    }
    // When the connection is back in its pool, all of its trips are made.
    let trips = async |pool: &PgPool, before: u64| {
        while pool.num_idle() != 1 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        proxy.passed().requests - before
    };
    let pool =
        PgPoolOptions::new().max_connections(1).test_before_acquire(false).connect(&world.place.url).await.unwrap();
    let mut bare = 0;
    for name in ["x", "y", "z"] {
        let before = trips(&pool, 0).await;
        let mut tx = pool.begin().await.unwrap();
        world.effect(&mut tx, name).await.unwrap();
        tx.commit().await.unwrap();
        bare = trips(&pool, before).await;
    }
    let own = world.pool.clone();
    let before = trips(&own, 0).await;
    run(&world, false, "a").await.0.unwrap();
    let value = async |mut tx: Own| Ok::<_, Failure>(world.effect(&mut tx, "b").await.map(|()| 17)?);
    let without = trips(&own, before).await;
    let before = trips(&own, 0).await;
    assert_eq!(world.inbox.run(call("b"), value).await.unwrap(), 17);
    assert_eq!(trips(&own, before).await, without, "a value goes with the commit");
    // The two statements are the claim, and the cleanup of the connection after the commit, for which no caller waits.
    assert_eq!(without, bare + 2);
}
