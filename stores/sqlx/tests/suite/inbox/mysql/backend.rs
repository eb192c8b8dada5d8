//! The parts of the inbox tests that differ on MariaDB.
use std::time::Duration;

use idempotent_core::{Claim, ClaimHandle, InFlight, Outcome, Settled, Store, StoreErrorKind};
use idempotent_harness::servers::MariaDbServer;
use idempotent_sqlx::Inbox;
use sqlx::mysql::{MySqlPool, MySqlPoolOptions};
use sqlx::{AssertSqlSafe, Executor as _, MySql};

use super::commits::run;
use super::fixture::{Place, server};
use super::world::{Own, Tx, World};
use crate::inbox::{Failure, call, key, request};

pub(super) const EFFECTS: &str = "CREATE TABLE effects (name varchar(100) NOT NULL) ENGINE=InnoDB";
pub(super) const INSERT: &str = "INSERT INTO effects(name) VALUES (?)";

/// Statements that end the transaction in which they are executed.
pub(super) const ENDING: &[&str] = &[
    "COMMIT",
    "COMMIT AND CHAIN",
    "ROLLBACK",
    "ROLLBACK AND CHAIN",
    "BEGIN",
    "START TRANSACTION",
    "COMMIT; BEGIN; SAVEPOINT idempotent_run",
    "SET autocommit=0; SET autocommit=1",
    "TRUNCATE TABLE effects_staging",
    "ANALYZE TABLE effects_staging",
    "CHECK TABLE effects_staging",
    "OPTIMIZE TABLE effects_staging",
    "REPAIR TABLE effects_staging",
    "FLUSH TABLES",
    "LOCK TABLES effects_staging WRITE",
    "CREATE TABLE IF NOT EXISTS effects_staging (id int)",
    "CREATE TABLE IF NOT EXISTS effects_other SELECT 1 AS id",
    "ALTER TABLE effects_staging COMMENT='x'",
    "DROP TABLE IF EXISTS effects_none",
    "RENAME TABLE effects_staging TO effects_moved, effects_moved TO effects_staging",
    "CREATE INDEX by_id ON effects_staging (id); DROP INDEX by_id ON effects_staging",
    "CREATE OR REPLACE VIEW effects_view AS SELECT 1",
    "ALTER VIEW effects_view AS SELECT 2",
    "DROP VIEW IF EXISTS effects_view",
    "DROP PROCEDURE IF EXISTS effects_procedure; CREATE PROCEDURE effects_procedure() SELECT 1",
    "ALTER PROCEDURE effects_procedure COMMENT 'x'",
    "DROP PROCEDURE IF EXISTS effects_procedure",
    "DROP FUNCTION IF EXISTS effects_function; \
     CREATE FUNCTION effects_function() RETURNS int DETERMINISTIC RETURN 1",
    "ALTER FUNCTION effects_function COMMENT 'x'",
    "DROP FUNCTION IF EXISTS effects_function",
    "CREATE EVENT IF NOT EXISTS effects_event ON SCHEDULE EVERY 1 DAY DISABLE DO SELECT 1",
    "ALTER EVENT effects_event COMMENT 'x'",
    "DROP EVENT IF EXISTS effects_event",
    "DROP TRIGGER IF EXISTS effects_trigger; \
     CREATE TRIGGER effects_trigger BEFORE DELETE ON effects_staging FOR EACH ROW SET @x = 1",
    "DROP TRIGGER IF EXISTS effects_trigger",
    "CREATE DATABASE IF NOT EXISTS effects_none",
    "ALTER DATABASE effects_none CHARACTER SET utf8mb4",
    "DROP DATABASE IF EXISTS effects_none",
    "DROP SERVER IF EXISTS effects_server; \
     CREATE SERVER effects_server FOREIGN DATA WRAPPER mysql OPTIONS (HOST '127.0.0.1')",
    "ALTER SERVER effects_server OPTIONS (HOST '127.0.0.2')",
    "DROP SERVER IF EXISTS effects_server",
    "CREATE ROLE IF NOT EXISTS effects_role",
    "GRANT SELECT ON effects_staging TO effects_role",
    "REVOKE ALL PRIVILEGES, GRANT OPTION FROM effects_role",
    "DROP ROLE IF EXISTS effects_role",
    "CREATE USER IF NOT EXISTS effects_user",
    "ALTER USER effects_user IDENTIFIED BY ''",
    "SET PASSWORD FOR effects_user = ''",
    "RENAME USER effects_user TO effects_moved; RENAME USER effects_moved TO effects_user",
    "DROP USER IF EXISTS effects_user",
];
/// Statements that leave the transaction as it is, although they look as if they ended it.
pub(super) const LASTING: &[&str] = &[
    "SELECT 1",
    "SET autocommit=1",
    "SAVEPOINT idempotent_run",
    "SAVEPOINT idempotent_run; ROLLBACK TO SAVEPOINT idempotent_run; RELEASE SAVEPOINT idempotent_run",
    "UNLOCK TABLES",
    "CREATE TEMPORARY TABLE IF NOT EXISTS effects_passing (id int)",
    "DROP TEMPORARY TABLE IF EXISTS effects_passing",
    "DELETE FROM effects_staging",
];

/// Statements that change a session, and whether its connection is used again.
pub(super) const CHANGES: &[(&str, bool)] = &[
    ("SELECT 1", true),
    ("SET @@timestamp=1000", true),
    ("SELECT get_lock('effects_lock',0)", true),
    ("USE effects_tenant", false),
    ("SET autocommit=0", false),
    ("SET SESSION TRANSACTION READ ONLY", false),
    ("SET SESSION TRANSACTION ISOLATION LEVEL SERIALIZABLE", false),
    ("SET sql_mode=''", false),
    ("SET time_zone='+03:00'", false),
    ("SET foreign_key_checks=0", false),
    ("SET completion_type=1", false),
    ("SET NAMES latin1", false),
];
/// The settings and locks of a session.
pub(super) const STATE: &str = "SELECT concat_ws('|',database(),@@autocommit,\
    /*M!100000 @@tx_isolation,@@tx_read_only, */ /*!80000 @@transaction_isolation,@@transaction_read_only, */\
    @@sql_mode,@@time_zone,@@foreign_key_checks,@@completion_type,@@character_set_client,is_free_lock('effects_lock'),now()>'2020-01-01')";

/// Returns the statement that creates a database of a tenant.
pub(super) fn tenant() -> String {
    "CREATE DATABASE effects_tenant".to_owned()
}

/// Returns the number of the connection.
pub(super) async fn connection_of(tx: &mut Tx) -> Option<i64> {
    sqlx::query_scalar("SELECT CAST(connection_id() AS SIGNED)").fetch_one(&mut **tx).await.ok()
}

pub(super) fn begin(level: &str) -> String {
    // A statement that waited for a lock would wait forever.
    format!("SET SESSION innodb_lock_wait_timeout=100000; SET TRANSACTION ISOLATION LEVEL {level}; BEGIN")
}

pub(super) async fn at_level(level: &str) -> World {
    let set = format!("SET SESSION TRANSACTION ISOLATION LEVEL {level}");
    let place = Place::new();
    let pool = MySqlPoolOptions::new().max_connections(16).test_before_acquire(false);
    let pool = pool.after_connect(move |connection, _| {
        let set = set.clone();
        Box::pin(async move { connection.execute(AssertSqlSafe(set)).await.map(drop) })
    });
    let pool = pool.connect_lazy(&place.url).unwrap();
    World::on_pool(place, pool, Duration::from_secs(5)).await
}

/// Ends the connection of this transaction.
pub(super) async fn end_connection(tx: &mut Tx, other: &MySqlPool) {
    let own: u64 = sqlx::query_scalar("SELECT connection_id()").fetch_one(&mut **tx).await.unwrap();
    other.execute(AssertSqlSafe(format!("KILL CONNECTION {own}"))).await.unwrap();
}

/// Meets a deadlock on purpose, as its victim: the server rolls back what this transaction did before, and commits at once
/// what it does from here on.
pub(super) async fn spoil(world: &World, tx: &mut Tx) {
    let sql = |text: &str| AssertSqlSafe(text.replace("rows", &format!("rows_{}", world.place.table)));
    let make =
        "CREATE TABLE IF NOT EXISTS rows (id int PRIMARY KEY) ENGINE=InnoDB; INSERT IGNORE INTO rows VALUES (1), (2)";
    world.pool.execute(sql(make)).await.unwrap();
    let mut other = world.other.begin().await.unwrap();
    // Heavier, so that it is the one that is let live.
    let heavy: Vec<_> = (3..100).map(|id| format!("({id})")).collect();
    let heavy = format!("INSERT INTO rows VALUES {}; SELECT id FROM rows WHERE id = 1 FOR UPDATE", heavy.join(","));
    sqlx::raw_sql(sql(&heavy)).execute(&mut *other).await.unwrap();
    sqlx::raw_sql(sql("SELECT id FROM rows WHERE id = 2 FOR UPDATE")).execute(&mut **tx).await.unwrap();
    let waiting = sqlx::raw_sql(sql("SELECT id FROM rows WHERE id = 2 FOR UPDATE")).execute(&mut *other);
    let victim = sqlx::raw_sql(sql("SELECT id FROM rows WHERE id = 1 FOR UPDATE")).execute(&mut **tx);
    let (waited, died) = tokio::join!(waiting, victim);
    waited.unwrap();
    let died = died.unwrap_err();
    assert!(died.to_string().contains("1213"), "{died}");
    other.rollback().await.unwrap();
}

#[tokio::test]
async fn a_claim_sees_rows_committed_after_the_snapshot_of_its_transaction() {
    for level in ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"] {
        let world = World::new().await;
        let pool = MySqlPool::connect(&world.place.url).await.unwrap();
        let mut late = pool.begin_with(AssertSqlSafe(begin(level))).await.unwrap();
        // What it sees is fixed here: the claim does not come first.
        let looked = format!("SELECT count(*) FROM {}", world.place.table);
        // SERIALIZABLE would lock what it has looked at.
        let looked = if level == "SERIALIZABLE" { "SELECT 1".to_owned() } else { looked };
        sqlx::query(AssertSqlSafe(looked)).execute(&mut *late).await.unwrap();
        let run = world.inbox.run(call("a"), async |mut tx: Own| Ok::<_, Failure>(world.effect(&mut tx, "a").await?));
        run.await.unwrap();
        let claim = world.store.claim_in(&mut late, &request("a")).await.unwrap();
        assert!(matches!(claim, Claim::Consumed(_)), "{level}: {claim:?}");
        world.effect(&mut late, "b").await.unwrap();
        late.commit().await.unwrap();
        assert_eq!(world.effects("b").await, 1);
    }
}

/// Uses the statements for MySQL, which MariaDB also accepts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn effect_and_record_are_one_with_the_statements_for_mysql_too() {
    let world = World::new().await;
    let store = Place::new().builder().__as_on_mysql().connect().await.unwrap();
    let executor = idempotent_core::Executor::new(store.clone());
    for inbox in [Inbox::<MySql>::new(&executor), Inbox::leased(&executor)] {
        let name = format!("{}", format!("{inbox:?}").contains("Leased"));
        for expected in [Outcome::Ran, Outcome::Replayed] {
            let run = inbox.run(call(&name), async |mut tx: Own| {
                world.effect(&mut tx, &name).await?;
                let busy = store.claim_in(&mut world.begin().await, &request("else")).await.unwrap();
                assert!(matches!(busy, Claim::Acquired(_)), "{busy:?}");
                Ok::<_, Failure>(17)
            });
            let (answer, outcome) = Outcome::capture(run).await;
            assert_eq!((answer.unwrap(), outcome), (17, Some(expected)));
        }
        assert_eq!(world.effects(&name).await, 1);
    }
    // A claim that meets an open transaction is answered immediately, also within another transaction.
    let (mut first, mut second) = (world.begin().await, store_pool(&world).begin().await.unwrap());
    let claimed = request("b");
    let claim = store.claim_in(&mut first, &claimed).await.unwrap();
    let Claim::Acquired(grant) = claim else { panic!("{claim:?}") };
    let held = ClaimHandle { key: key("b"), owner: claimed.owner, fencing: Some(grant.fencing), terms: None };
    assert_eq!(store.claim_in(&mut second, &request("b")).await.unwrap(), Claim::InFlight(InFlight::Busy));
    second.commit().await.unwrap();
    assert_eq!(store.complete_in(&mut first, &held, &crate::support::done(b"1")).await.unwrap(), Settled::Done);
    first.commit().await.unwrap();
    assert!(matches!(store.claim(&request("b")).await.unwrap(), Claim::Consumed(_)));
}

fn store_pool(world: &World) -> MySqlPool {
    MySqlPool::connect_lazy(&world.place.url).unwrap()
}

/// The error states that the server has rolled back the whole transaction because of a lock.
#[tokio::test]
async fn a_busy_key_is_the_end_of_the_transaction_where_the_server_is_set_so() {
    let server = MariaDbServer::start_with(&["--innodb-rollback-on-timeout=1"]);
    let store = idempotent_sqlx::MySqlStore::builder(server.url()).create(true).connect().await.unwrap();
    let pool = MySqlPool::connect(&server.url()).await.unwrap();
    let mut first = pool.begin().await.unwrap();
    assert!(matches!(store.claim_in(&mut first, &request("a")).await.unwrap(), Claim::Acquired(_)));
    let mut second = pool.begin().await.unwrap();
    let error = store.claim_in(&mut second, &request("a")).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::RolledBack, "{error}");
}

#[tokio::test]
async fn a_run_costs_a_claim_and_a_completion_more_than_its_transaction() {
    let world = World::at(Place::new(), 1).await;
    let count = async || {
        let mut all = Vec::new();
        for name in ["insert", "update", "select", "begin", "commit"] {
            let status = AssertSqlSafe(format!("SHOW SESSION STATUS LIKE 'Com_{name}'"));
            let row = sqlx::raw_sql(status).fetch_one(&world.pool).await.unwrap();
            all.push(sqlx::Row::get::<String, _>(&row, 1).parse::<i64>().unwrap());
        }
        all
    };
    for value in [false, true] {
        let before = count().await;
        let name = value.to_string();
        if !value {
            run(&world, false, &name).await.0.unwrap();
        } else {
            let with_value = async |mut tx: Own| Ok::<_, Failure>(world.effect(&mut tx, &name).await.map(|()| 17)?);
            world.inbox.run(call(&name), with_value).await.unwrap();
        }
        let ran: Vec<_> = count().await.iter().zip(before).map(|(after, before)| after - before).collect();
        // The claim and the effect; and in the trip of the commit the completion, the proof that it changed a row, and the look
        // at the session. MySQL cannot return the inserted row, nor insert without a wait: it reads before and after.
        let selects = if server().is_mysql() { 4 } else { 2 };
        assert_eq!(ran, [2, 1, selects, 1, 1]);
    }
}
