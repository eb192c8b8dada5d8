//! Tests that need private items of the store: a quota, a broken migration, a lost connection, the kinds of errors.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
use std::sync::Arc;

use idempotent_core::{
    Claim, ClaimHandle, ClaimRequest, Completion, Identity, Key, OnExpiry, OwnerToken, Scene, StateKind, StoreErrorKind,
};
use sqlx::sqlite::{SqliteConnectOptions, SqliteRow};
use sqlx::{ConnectOptions, Row};

use super::migrate::{MIGRATIONS, migrate};
use super::*;
use crate::schema::Migration;
use crate::table::Table;

pub(super) fn key(part: &str) -> Key {
    Identity::new(Scene::Mq, "tests", part).key("test").unwrap()
}

pub(super) fn request(part: &str) -> ClaimRequest {
    ClaimRequest {
        key: key(part),
        owner: OwnerToken(1),
        lease: Duration::from_secs(30),
        fingerprint: None,
        max_attempts: 0,
        on_expiry: OnExpiry::Takeover,
        retention: Duration::from_secs(60),
        display: None,
    }
}

pub(super) async fn open() -> (tempfile::TempDir, SqliteStore) {
    let folder = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(folder.path().join("records.db").to_str().unwrap()).await.unwrap();
    (folder, store)
}

#[tokio::test]
async fn a_full_disk_is_not_applied_and_nothing_is_lost() {
    let (_folder, store) = open().await;
    assert!(matches!(store.claim(&request("a")).await, Ok(Claim::Acquired(_))));
    store.0.access.writer.turn().await.unwrap().first(sqlx::query("PRAGMA max_page_count=5")).await.unwrap();
    let held = ClaimHandle::unanswered(key("a"), OwnerToken(1));
    let big = Completion { value: Some(Arc::from(vec![7; 1 << 20])), retain: Duration::from_secs(60) };
    let error = store.complete(&held, &big).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::NotApplied, "{error}");
    for word in ["full", "records.db", "free some space"] {
        assert!(error.to_string().contains(word), "{error}");
    }
    assert_eq!(store.peek(&held.key).await.unwrap().unwrap().state.kind(), StateKind::Consuming);
    // A batch that does not fit fails as a whole.
    let many: Vec<_> = (0..500).map(|index| request(&format!("{index}"))).collect();
    let answers = idempotent_core::Batch::claim_all(&store, &many).await;
    for answer in answers {
        let error = answer.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::NotApplied);
        assert!(error.to_string().contains("free some space"), "{error}");
    }
    assert!(store.peek(&key("0")).await.unwrap().is_none());
    let small = Completion { value: None, ..big };
    assert_eq!(store.complete(&held, &small).await.unwrap(), Settled::Done, "what fits is still written");
}

#[tokio::test]
async fn a_migration_that_breaks_leaves_what_was_there_and_can_be_repeated() {
    const ADDED: &str = "ALTER TABLE {table} ADD COLUMN later INTEGER";
    let (_folder, store) = open().await;
    let table = Table::default();
    let broken = Migration { name: "later", sql: "ALTER TABLE {table} ADD COLUMN later INTEGER; SELECT nonsense" };
    let mut turn = store.0.access.writer.turn().await.unwrap();
    let connection = turn.connection().unwrap();
    let steps = [MIGRATIONS[0], MIGRATIONS[1], MIGRATIONS[2], broken];
    let error = migrate(connection, &table, &store.0.access.place, true, &steps).await.unwrap_err();
    assert!(error.to_string().contains("layout"), "{error}");
    let columns = "SELECT count(*) FROM pragma_table_info('idempotent_record')";
    let versions = "SELECT max(version) FROM idempotent_record_migrations";
    let number = |row: SqliteRow| row.get::<i64, _>(0);
    assert_eq!(number(sqlx::query(columns).fetch_one(&mut *connection).await.unwrap()), 16);
    assert_eq!(number(sqlx::query(versions).fetch_one(&mut *connection).await.unwrap()), 3);

    let steps = [MIGRATIONS[0], MIGRATIONS[1], MIGRATIONS[2], Migration { name: "later", sql: ADDED }];
    let error = migrate(connection, &table, &store.0.access.place, false, &steps).await.unwrap_err();
    assert!(error.to_string().contains("schema version 3, needed is 4"), "{error}");
    for _ in 0..2 {
        migrate(connection, &table, &store.0.access.place, true, &steps).await.unwrap();
        assert_eq!(number(sqlx::query(columns).fetch_one(&mut *connection).await.unwrap()), 17);
        assert_eq!(number(sqlx::query(versions).fetch_one(&mut *connection).await.unwrap()), 4);
    }
    // The version before refuses what the one after made.
    let error = migrate(connection, &table, &store.0.access.place, true, MIGRATIONS).await.unwrap_err();
    assert!(error.to_string().contains("schema version 4, supported is 3"), "{error}");
    drop(turn);
    assert!(matches!(store.claim(&request("a")).await, Ok(Claim::Acquired(_))), "no transaction was left open");
}

#[tokio::test]
async fn a_connection_that_was_lost_is_opened_again() {
    let (_folder, store) = open().await;
    store.claim(&request("a")).await.unwrap();
    let mut turn = store.0.access.writer.turn().await.unwrap();
    let lost: Result<(), _> = turn.check(Err(sqlx::Error::WorkerCrashed));
    assert_eq!(lost.unwrap_err().kind(), StoreErrorKind::Ambiguous);
    drop(turn);
    assert!(matches!(store.claim(&request("a")).await, Ok(Claim::Acquired(_))));
    let mut turn = store.0.access.writer.turn().await.unwrap();
    turn.begin();
    let lost: Result<(), _> = turn.check(Err(sqlx::Error::WorkerCrashed));
    let lost = turn.end(lost).await;
    assert_eq!(lost.unwrap_err().kind(), StoreErrorKind::Ambiguous);
    drop(turn);
    assert!(matches!(store.claim(&request("a")).await, Ok(Claim::Acquired(_))));
}

/// Checks the text of released migrations: every existing database would refuse another text.
#[test]
fn a_released_migration_is_never_edited() {
    let sums: Vec<_> = MIGRATIONS.iter().map(|step| step.checksum()[..4].to_vec()).collect();
    assert_eq!(sums, [[32, 30, 63, 67], [225, 233, 125, 180], [60, 53, 239, 129]]);
}

#[tokio::test]
async fn an_error_is_of_the_class_that_says_what_was_done() {
    let (folder, store) = open().await;
    let file = folder.path().join("records.db");
    let mut reading = SqliteConnectOptions::new().filename(&file).read_only(true).connect().await.unwrap();
    let write = "UPDATE idempotent_record SET v = v";
    let error = sqlx::query(write).execute(&mut reading).await.unwrap_err();
    let error = store.0.access.place.error(error);
    assert_eq!(error.kind(), StoreErrorKind::Denied);
    assert!(error.to_string().contains("is read-only"), "{error}");
    let error = SqliteConnectOptions::new().filename(folder.path()).connect().await.unwrap_err();
    let error = store.0.access.place.error(error);
    assert_eq!(error.kind(), StoreErrorKind::Denied);
    assert!(error.to_string().contains("cannot be opened"), "{error}");
    // A file whose pages are no longer what they were.
    let mut turn = store.0.access.writer.turn().await.unwrap();
    turn.first(sqlx::query("PRAGMA wal_checkpoint(TRUNCATE)")).await.unwrap();
    drop(turn);
    drop((store, reading));
    let mut bytes = std::fs::read(&file).unwrap();
    bytes[100..].fill(0xaa);
    std::fs::write(&file, bytes).unwrap();
    let error = SqliteStore::open(file.to_str().unwrap()).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Corrupt, "{error}");
    assert!(error.to_string().contains("is damaged"), "{error}");
}
