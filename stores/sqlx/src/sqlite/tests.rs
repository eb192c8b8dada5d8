//! Tests that need private items of the store: a quota, a broken migration, a lost connection, the kinds of errors.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
use std::sync::Arc;

use idempotent_core::{
    Claim, ClaimHandle, ClaimRequest, Completion, Identity, Key, OnExpiry, OwnerToken, Scene, StoreError,
    StoreErrorKind,
};
use sqlx::sqlite::{SqliteConnectOptions, SqliteRow};
use sqlx::{ConnectOptions, Row};

use super::migrate::{KNOWN, MIGRATIONS, migrate};
use super::*;
use crate::catalog::KnownSchema;
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

fn request_of(part: &str, owner: u128) -> ClaimRequest {
    ClaimRequest { owner: OwnerToken(owner), ..request(part) }
}

pub(super) async fn open() -> (tempfile::TempDir, SqliteStore) {
    let folder = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(folder.path().join("records.db").to_str().unwrap()).await.unwrap();
    (folder, store)
}

async fn limit(store: &SqliteStore, pages: u32) {
    let limit = format!("PRAGMA max_page_count={pages}");
    store.0.access.writer.turn().await.unwrap().first(sqlx::query(sqlx::AssertSqlSafe(limit))).await.unwrap();
}

fn done(bytes: usize) -> Completion {
    Completion { value: Some(Arc::from(vec![7; bytes])), retain: Duration::from_secs(60) }
}

fn held(part: &str) -> ClaimHandle {
    ClaimHandle::unanswered(key(part), OwnerToken(1))
}

/// Checks that the error names the full disk.
#[track_caller]
fn is_full<T: std::fmt::Debug>(answer: Result<T, StoreError>) {
    let error = answer.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::NotApplied, "{error}");
    for word in ["full", "records.db", "free some space"] {
        assert!(error.to_string().contains(word), "{error}");
    }
}

#[tokio::test]
async fn a_full_disk_is_not_applied_and_nothing_is_lost() {
    let (_folder, store) = open().await;
    limit(&store, 5).await;
    // A batch that does not fit fails as a whole.
    let many: Vec<_> = (0..500).map(|index| request(&format!("{index}"))).collect();
    idempotent_core::Batch::claim_all(&store, &many).await.into_iter().for_each(is_full);
    assert!(store.peek(&key("0")).await.unwrap().is_none());
    assert!(matches!(store.claim(&request("a")).await, Ok(Claim::Acquired(_))));
    let small = Completion { value: None, ..done(0) };
    assert_eq!(store.complete(&held("a"), &small).await.unwrap(), Settled::Done, "what fits is still written");
}

#[tokio::test]
async fn a_result_that_a_full_disk_has_no_room_for_is_left_out_and_no_run_begins_until_it_fits() {
    for in_a_batch in [false, true] {
        let (_folder, store) = open().await;
        for part in ["a", "b"] {
            assert!(matches!(store.claim(&request(part)).await, Ok(Claim::Acquired(_))));
        }
        limit(&store, 5).await;
        let completed = match in_a_batch {
            false => vec![store.complete(&held("a"), &done(1 << 20)).await, store.complete(&held("b"), &done(4)).await],
            true => {
                let both = [(held("a"), done(1 << 20)), (held("b"), done(4))];
                idempotent_core::Batch::complete_all(&store, &both).await
            }
        };
        assert!(completed.into_iter().all(|settled| settled.unwrap() == Settled::Done));
        let Claim::Consumed(found) = store.claim(&request_of("a", 2)).await.unwrap() else { panic!("not consumed") };
        assert!(found.value.is_none());
        let Claim::Consumed(found) = store.claim(&request_of("b", 2)).await.unwrap() else { panic!("not consumed") };
        assert_eq!(found.value.unwrap().len(), 4, "what fits is stored");
        is_full(store.claim(&request("c")).await);
        let together: Vec<_> = ["c", "d"].map(request).into();
        idempotent_core::Batch::claim_all(&store, &together).await.into_iter().for_each(is_full);
        let report = idempotent_core::store::Health::check(&store).await.unwrap();
        assert!(report.to_string().contains("consumed without its result of 1048576 bytes"), "{report}");

        limit(&store, 1 << 20).await;
        assert!(matches!(store.claim(&request("c")).await, Ok(Claim::Acquired(_))));
        let Claim::Consumed(found) = store.claim(&request_of("a", 2)).await.unwrap() else { panic!("not consumed") };
        assert_eq!(found.value.unwrap().len(), 1 << 20, "the result is stored after all");
        let report = idempotent_core::store::Health::check(&store).await.unwrap();
        assert!(!report.to_string().contains("full"), "{report}");
    }
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
    let error = migrate(connection, &table, &store.0.access.place, true, &KnownSchema { migrations: &steps, ..KNOWN })
        .await
        .unwrap_err();
    assert!(error.to_string().contains("layout"), "{error}");
    let columns = "SELECT count(*) FROM pragma_table_info('idempotent_record')";
    let versions = "SELECT max(version) FROM idempotent_record_migrations";
    let number = |row: SqliteRow| row.get::<i64, _>(0);
    assert_eq!(number(sqlx::query(columns).fetch_one(&mut *connection).await.unwrap()), 16);
    assert_eq!(number(sqlx::query(versions).fetch_one(&mut *connection).await.unwrap()), 3);

    let steps = [MIGRATIONS[0], MIGRATIONS[1], MIGRATIONS[2], Migration { name: "later", sql: ADDED }];
    let error = migrate(connection, &table, &store.0.access.place, false, &KnownSchema { migrations: &steps, ..KNOWN })
        .await
        .unwrap_err();
    assert!(error.to_string().contains("schema version 3, needed is 4"), "{error}");
    for _ in 0..2 {
        migrate(connection, &table, &store.0.access.place, true, &KnownSchema { migrations: &steps, ..KNOWN })
            .await
            .unwrap();
        assert_eq!(number(sqlx::query(columns).fetch_one(&mut *connection).await.unwrap()), 17);
        assert_eq!(number(sqlx::query(versions).fetch_one(&mut *connection).await.unwrap()), 4);
    }
    // The version before refuses what the one after made.
    let error = migrate(connection, &table, &store.0.access.place, true, &KNOWN).await.unwrap_err();
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
