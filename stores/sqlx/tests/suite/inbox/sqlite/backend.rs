//! The parts of the inbox tests that differ on SQLite.
use std::time::Duration;

use idempotent_core::{BorrowedTransaction, Executor, Outcome, Rejection, StoreErrorKind, step_in};
use idempotent_sqlx::{Inbox, SqliteStore};
use sqlx::Sqlite;

use super::steps;
use super::world::{Own, Tx, World};
use crate::inbox::{Failure, call, released};

/// Statements that end the transaction in which they are executed.
pub(super) const ENDING: &[&str] = &[
    "COMMIT",
    "END",
    "ROLLBACK",
    "COMMIT; BEGIN IMMEDIATE",
    "COMMIT; BEGIN; SAVEPOINT idempotent_run",
    "ROLLBACK; SAVEPOINT idempotent_run",
];
/// Statements that leave the transaction as it is, although they end it on other databases.
pub(super) const LASTING: &[&str] = &[
    "SELECT 1",
    "SAVEPOINT idempotent_run",
    "SAVEPOINT x; ROLLBACK TO x; RELEASE x",
    "CREATE TABLE IF NOT EXISTS effects_staging (id int)",
    "DELETE FROM effects_staging",
    "ANALYZE effects_staging",
];

/// Returns `None`: connections of SQLite have no numbers.
pub(super) async fn connection_of(_: &mut Tx) -> Option<i64> {
    None
}

#[tokio::test]
async fn no_setting_of_a_handler_stays_with_the_connection() {
    let world = World::new().await;
    let state = async |tx: &mut Tx| {
        let settings =
            "SELECT (SELECT count(*) FROM pragma_database_list) || (SELECT query_only FROM pragma_query_only)
            || (SELECT recursive_triggers FROM pragma_recursive_triggers)";
        sqlx::query_scalar::<_, String>(settings).fetch_one(&mut **tx).await.unwrap()
    };
    let fresh =
        world.inbox.run(call("fresh"), async |mut tx: Own| Ok::<_, Failure>(state(&mut tx).await)).await.unwrap();
    for (nth, change) in
        ["PRAGMA recursive_triggers=1", "ATTACH ':memory:' AS tenant", "PRAGMA query_only=1"].iter().enumerate()
    {
        for fails in [true, false] {
            let name = format!("{nth}{fails}");
            let run = world.inbox.run(call(&name), async |mut tx: Own| {
                world.effect(&mut tx, &name).await?;
                sqlx::raw_sql(*change).execute(&mut **tx).await?;
                if fails { Err(Failure::Own("no stock")) } else { Ok(17) }
            });
            let (answer, outcome) = Outcome::capture(run).await;
            // A connection that only reads cannot complete the record: nothing is committed.
            let commits = !fails && *change != "PRAGMA query_only=1";
            assert_eq!(outcome == Some(Outcome::Ran), commits, "{change}: {answer:?}");
            assert_eq!(world.effects(&name).await, i64::from(commits), "{change}");
            let next = world.inbox.run(call(&format!("{name} next")), async |mut tx: Own| {
                assert_eq!(state(&mut tx).await, fresh, "{change}");
                Ok::<_, Failure>(())
            });
            next.await.unwrap();
        }
    }
}

#[tokio::test]
async fn a_duplicate_of_what_is_done_waits_for_nobodys_transaction() {
    let world = World::new().await;
    world.inbox.run(call("a"), async |mut tx: Own| Ok::<_, Failure>(world.effect(&mut tx, "a").await?)).await.unwrap();
    // Another process is in the middle of one.
    let tx = world.begin().await;
    let run = world.inbox.run(call("a"), async |_: Own| Ok::<_, Failure>(()));
    assert_eq!(Outcome::capture(run).await.1, Some(Outcome::Replayed));
    drop(tx);
}

#[tokio::test]
async fn an_unavailable_lock_is_reported_and_nothing_runs() {
    let world = World::new().await;
    let store = world.place.builder().busy_timeout(Duration::from_millis(20)).open().await.unwrap();
    let tx = world.begin().await;
    let inbox = Inbox::<Sqlite>::new(&Executor::new(store));
    let run = inbox.run(call("a"), async |_: Own| -> Result<(), Failure> { panic!("it has no transaction") });
    let (answer, outcome) = Outcome::capture(run).await;
    assert_eq!(outcome, Some(Outcome::StoreDown(StoreErrorKind::NotApplied)));
    assert!(answer.unwrap_err().to_string().contains("locked by another process"));
    drop(tx);
}

#[tokio::test]
async fn a_database_in_memory_has_no_transactions_for_runs() {
    let inbox = Inbox::<Sqlite>::new(&Executor::new(SqliteStore::open("sqlite::memory:").await.unwrap()));
    let error = inbox.run(call("a"), async |_: Own| Ok::<(), Failure>(())).await.unwrap_err();
    assert!(error.to_string().contains("use a file"), "{error}");
}

/// The statement rolls back the whole transaction, and each later statement commits immediately.
#[tokio::test]
async fn a_handler_that_hides_a_rollback_is_not_taken_for_done() {
    let world = World::new().await;
    world.place.sql("CREATE TABLE one(id INTEGER PRIMARY KEY)").await;
    world.place.sql("INSERT INTO one VALUES (1)").await;
    let hide = async |tx: &mut Tx, name: &str| {
        world.effect(tx, name).await?;
        sqlx::query("INSERT OR ROLLBACK INTO one VALUES (1)").execute(&mut **tx).await.unwrap_err();
        Ok::<_, Failure>(())
    };
    for (inbox, name) in [(&world.inbox, "a"), (&world.leased, "b")] {
        let run = inbox.run(call(name), async |mut tx: Own| hide(&mut tx, name).await);
        let (answer, outcome) = Outcome::capture(run).await;
        assert!(matches!(answer, Err(Failure::Rejected(Rejection::RolledBack { .. }))), "{name}: {answer:?}");
        released(outcome);
    }
    let charge = async || step_in("charge", async |mut tx: BorrowedTransaction<Tx>| hide(&mut tx, "c").await).await;
    released(steps::run(&world, "c", charge).await.1);
    // One that does not hide it leaves the connection in no better state.
    let run = world.inbox.run(call("d"), async |mut tx: Own| {
        hide(&mut tx, "d").await?;
        Err::<(), _>(Failure::Sql)
    });
    released(Outcome::capture(run).await.1);
    for name in ["a", "b", "c", "d"] {
        assert_eq!(world.effects(name).await, 0);
        let run = world.inbox.run(call(name), async |mut tx: Own| Ok::<_, Failure>(world.effect(&mut tx, name).await?));
        assert_eq!(Outcome::capture(run).await.1, Some(Outcome::Ran), "{name}");
    }
}
