//! The version guard on SQLite; on PostgreSQL in `tests/postgres`.
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

use idempotent_sqlx::{VersionCheck, VersionGuard};
use sqlx::sqlite::{SqliteConnectOptions, SqlitePoolOptions};
use sqlx::{Connection, SqlitePool};
use tokio::sync::Barrier;

struct World {
    pool: SqlitePool,
    guard: VersionGuard,
    _dir: tempfile::TempDir,
}

async fn world() -> World {
    let dir = tempfile::tempdir().unwrap();
    let options = SqliteConnectOptions::new().filename(dir.path().join("versions.db")).create_if_missing(true);
    let pool = SqlitePoolOptions::new().max_connections(4).connect_with(options).await.unwrap();
    let guard = VersionGuard::new("entity_version").unwrap();
    let mut connection = pool.acquire().await.unwrap();
    guard.create(&mut *connection).await.unwrap();
    guard.create(&mut *connection).await.unwrap();
    sqlx::query("CREATE TABLE mark (id TEXT PRIMARY KEY)").execute(&mut *connection).await.unwrap();
    drop(connection);
    World { pool, guard, _dir: dir }
}

impl World {
    async fn newer(&self, fields: &str, version: u64) -> VersionCheck {
        self.guard.newer(&mut *self.pool.acquire().await.unwrap(), "customer/17", fields, version).await.unwrap()
    }

    async fn next(&self, fields: &str, version: u64) -> VersionCheck {
        self.guard.next(&mut *self.pool.acquire().await.unwrap(), "customer/17", fields, version).await.unwrap()
    }
}

#[tokio::test]
async fn a_newer_version_is_accepted_once_and_an_older_one_never() {
    let world = world().await;
    assert_eq!(world.newer("address", 3).await, VersionCheck::Accepted);
    assert_eq!(world.newer("address", 3).await, VersionCheck::Same);
    assert_eq!(world.newer("address", 2).await, VersionCheck::Older { current: 3 });
    assert_eq!(world.newer("address", 7).await, VersionCheck::Accepted);
    assert_eq!(world.newer("address", i64::MAX as u64).await, VersionCheck::Accepted);
    let mut connection = world.pool.acquire().await.unwrap();
    assert!(world.guard.newer(&mut *connection, "customer/17", "address", u64::MAX).await.is_err());
}

/// Both drawbacks of a version column: one for each kind of update, or updates that have nothing to do with each other
/// take each other for duplicates.
#[tokio::test]
async fn fields_that_have_nothing_to_do_with_each_other_do_not_block_each_other() {
    let world = world().await;
    assert_eq!(world.newer("address", 3).await, VersionCheck::Accepted);
    assert_eq!(world.newer("price", 3).await, VersionCheck::Accepted);
    assert_eq!(world.newer("price", 2).await, VersionCheck::Older { current: 3 });
    let mut connection = world.pool.acquire().await.unwrap();
    assert_eq!(
        world.guard.newer(&mut *connection, "customer/18", "price", 1).await.unwrap(),
        VersionCheck::Accepted,
        "another entity"
    );
}

/// The second drawback of a version: two updates that start from the same version and share a field. Under one name the later
/// one counts as a duplicate; under two names both are accepted, and the later one overwrites the shared field.
#[tokio::test]
async fn updates_with_a_shared_field_need_one_version_for_the_whole_entity() {
    let world = world().await;
    assert_eq!(world.newer("customer", 3).await, VersionCheck::Accepted);
    assert_eq!(world.newer("customer", 3).await, VersionCheck::Same, "another update with an equal version is lost");
    assert_eq!(world.newer("address", 3).await, VersionCheck::Accepted);
    assert_eq!(world.newer("address and price", 3).await, VersionCheck::Accepted);
    assert_eq!(world.newer("customer", 4).await, VersionCheck::Accepted, "a producer that numbers the whole entity");
}

#[tokio::test]
async fn the_next_version_is_accepted_and_a_later_one_has_to_wait() {
    let world = world().await;
    assert_eq!(world.next("balance", 2).await, VersionCheck::Ahead { current: 0 });
    assert_eq!(world.next("balance", 1).await, VersionCheck::Accepted);
    assert_eq!(world.next("balance", 1).await, VersionCheck::Same);
    assert_eq!(world.next("balance", 3).await, VersionCheck::Ahead { current: 1 });
    assert_eq!(world.next("balance", 2).await, VersionCheck::Accepted);
    assert_eq!(world.next("balance", 3).await, VersionCheck::Accepted);
    assert_eq!(world.next("balance", 1).await, VersionCheck::Older { current: 3 });
}

#[tokio::test]
async fn a_version_that_was_rolled_back_was_never_accepted() {
    let world = world().await;
    let mut connection = world.pool.acquire().await.unwrap();
    let mut tx = connection.begin().await.unwrap();
    assert_eq!(world.guard.newer(&mut *tx, "customer/17", "address", 1).await.unwrap(), VersionCheck::Accepted);
    tx.rollback().await.unwrap();
    drop(connection);
    assert_eq!(world.newer("address", 1).await, VersionCheck::Accepted);
}

#[test]
fn a_name_that_is_none_is_refused() {
    let said = VersionGuard::new("x; DROP TABLE mark").unwrap_err().to_string();
    assert!(said.contains("table name"), "{said}");
}

/// A wrong implementation: it reads the mark, runs, and writes the mark. Two concurrent copies both run.
async fn looks_and_then_runs(world: &World, both_looked: &Barrier, effects: &AtomicU32) {
    let done: Option<String> =
        sqlx::query_scalar("SELECT id FROM mark WHERE id = 'm-1'").fetch_optional(&world.pool).await.unwrap();
    both_looked.wait().await;
    if done.is_none() {
        effects.fetch_add(1, SeqCst);
        let note = sqlx::query("INSERT INTO mark VALUES ('m-1') ON CONFLICT DO NOTHING");
        note.execute(&world.pool).await.unwrap();
    }
}

/// The same two copies, by compare and set: there is no look that could be too old.
async fn compares_and_sets(world: &World, both_here: &Barrier, effects: &AtomicU32) {
    both_here.wait().await;
    let mut tx = world.pool.begin_with("BEGIN IMMEDIATE").await.unwrap();
    if world.guard.newer(&mut *tx, "m-1", "all", 1).await.unwrap() == VersionCheck::Accepted {
        effects.fetch_add(1, SeqCst);
    }
    tx.commit().await.unwrap();
}

#[tokio::test]
async fn to_look_and_then_to_run_runs_twice_and_compare_and_set_once() {
    let world = world().await;
    let (both, effects) = (Barrier::new(2), AtomicU32::new(0));
    let copy = || looks_and_then_runs(&world, &both, &effects);
    futures_util::future::join(copy(), copy()).await;
    assert_eq!(effects.load(SeqCst), 2, "the race that nobody sees in a test without a barrier");
    let (both, effects) = (Arc::new(Barrier::new(2)), Arc::new(AtomicU32::new(0)));
    let copy = || compares_and_sets(&world, &both, &effects);
    futures_util::future::join(copy(), copy()).await;
    assert_eq!(effects.load(SeqCst), 1);
}
