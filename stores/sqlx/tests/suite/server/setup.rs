//! Errors of opening a store, and their texts, on each server.
use std::fmt::Debug;
use std::time::Duration;

use idempotent_core::{Claim, Store, StoreError, StoreErrorKind};
use idempotent_sqlx::SchemaStep;

use super::fixture::{self, Place, Store as ServerStore, sql};
use super::tls::MODE;
use crate::support::{key, request};
use crate::tables::open_on_printed_migrations;

#[track_caller]
pub(crate) fn refused<T: Debug>(result: Result<T, StoreError>, kind: StoreErrorKind, words: &[&str]) {
    let error = result.unwrap_err();
    assert_eq!(error.kind(), kind, "{error}");
    for word in words {
        assert!(error.to_string().contains(word), "{word:?} is not in: {error}");
    }
}

#[tokio::test]
async fn a_missing_table_is_named_with_the_remedy_and_never_made_unasked() {
    let place = Place::new();
    let open = ServerStore::builder(&place.url).table(&place.table).connect().await;
    refused(open, StoreErrorKind::Schema, &[&place.table, "missing", "open it once with `create(true)`"]);
    assert!(!place.has(&place.table));
}

#[tokio::test]
async fn a_table_that_goes_while_the_store_is_open_is_named_too() {
    let place = Place::new();
    let store = place.open().await;
    sql(&format!("DROP TABLE {}", place.table));
    let claim = store.claim(&request(&key("a"), 1)).await;
    refused(
        claim,
        StoreErrorKind::Schema,
        &[&format!("`{}` is missing", place.table), "`create(true)`", fixture::NO_TABLE],
    );
}

#[tokio::test]
async fn a_store_opens_on_tables_that_an_administrator_created() {
    let place = Place::new();
    let steps = place.builder().schema_steps().unwrap();
    assert_eq!(steps.iter().map(SchemaStep::version).collect::<Vec<_>>(), [1, 2, 3]);
    let open = async |create| place.builder().create(create).connect().await;
    open_on_printed_migrations(&steps, async |text: String| drop(sql(&text)), open).await;
    assert_eq!(sql(&format!("SELECT count(*) FROM {}_migrations", place.table)), "3");
}

#[tokio::test]
async fn an_empty_table_of_migrations_has_version_0() {
    let place = Place::new();
    place.open().await;
    sql(&format!("DROP TABLE {0}; DELETE FROM {0}_migrations", place.table));
    let open = place.builder().create(false).connect().await;
    refused(open, StoreErrorKind::Schema, &["schema version 0", "needed is 3", "`create(true)`"]);
    place.open().await;
    place.builder().create(false).connect().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn openers_at_once_migrate_once() {
    for _ in 0..8 {
        let place = Place::new();
        let opening = (0..16).map(|_| tokio::spawn(place.builder().connections(1).connect()));
        for opened in opening.collect::<Vec<_>>() {
            opened.await.unwrap().unwrap();
        }
        assert_eq!(sql(&format!("SELECT count(*) FROM {}_migrations", place.table)), "3");
    }
}

#[tokio::test]
async fn an_open_that_is_dropped_on_the_way_can_be_repeated() {
    let place = Place::new();
    for polls in 0..40 {
        let mut opening = Box::pin(place.builder().connect());
        for _ in 0..polls {
            if tokio::time::timeout(Duration::from_micros(500), &mut opening).await.is_ok() {
                break;
            }
        }
    }
    let store = place.open().await;
    assert!(matches!(store.claim(&request(&key("a"), 1)).await.unwrap(), Claim::Acquired(_)));
}

#[tokio::test]
async fn a_pool_without_a_free_connection_says_how_many_it_has() {
    let place = Place::new();
    let store = place.builder().connections(1).timeout(Duration::from_secs(2)).connect().await.unwrap();
    // The only connection waits for the lock of another program.
    let other = place.other();
    let mut blocking = other.acquire().await.unwrap();
    place.lock_whole_table(&mut blocking).await;
    let requests = ["a", "b", "c", "d"].map(|name| request(&key(name), 1));
    let mut answers = futures_util::future::join_all(requests.iter().map(|request| store.claim(request))).await;
    refused(answers.remove(0), StoreErrorKind::Ambiguous, &["no answer", "2s"]);
    // The first gives up when the others do, so that one of them may get its place in the same instant. Not all can.
    answers.retain(|answer| !matches!(answer, Err(error) if error.kind() == StoreErrorKind::Ambiguous));
    assert!(!answers.is_empty());
    for answer in answers {
        refused(answer, StoreErrorKind::NotApplied, &["all 1 connections were in use", "raise `connections`"]);
    }
    // What was given up does not come back to life: its connection was closed.
    fixture::unlock(&mut blocking).await;
    let mut tries = 0;
    while store.claim(&request(&key("c"), 1)).await.is_err() {
        tries += 1;
        assert!(tries < 100, "the store is stuck");
    }
}

#[tokio::test]
async fn names_that_hide_something_or_would_be_cut_off_are_refused() {
    for name in ["x\"; drop table r; --", "Records", "", "1st", &"a".repeat(64)] {
        let open = Place::new().builder().table(name).connect().await;
        refused(open, StoreErrorKind::Schema, &["table name", "letters a-z"]);
        let open = Place::new().builder().schema(name).connect().await;
        refused(open, StoreErrorKind::Schema, &["schema name", "letters a-z"]);
    }
    // The name must also fit with the suffix `_migrations`.
    let open = Place::new().builder().table("a".repeat(53)).connect().await;
    refused(open, StoreErrorKind::Schema, &["table name", "52"]);
}

#[tokio::test]
async fn a_schema_holds_both_tables_and_must_be_there() {
    let place = Place::new();
    let open = place.builder().schema("nowhere").connect().await;
    refused(open, fixture::NO_SCHEMA.0, fixture::NO_SCHEMA.1);
    sql("CREATE SCHEMA elsewhere");
    let store = place.builder().schema("elsewhere").connect().await.unwrap();
    assert!(matches!(store.claim(&request(&key("a"), 1)).await.unwrap(), Claim::Acquired(_)));
    assert_eq!(sql(&format!("SELECT count(*) FROM elsewhere.{}", place.table)), "1");
    assert_eq!(sql(&format!("SELECT count(*) FROM elsewhere.{}_migrations", place.table)), "3");
}

#[tokio::test]
async fn a_table_that_is_not_ours_is_left_alone() {
    let place = Place::new();
    sql(&format!("CREATE TABLE {} (mine int)", place.table));
    refused(place.builder().connect().await, StoreErrorKind::Foreign, &[&place.table, "a different layout"]);
    assert_eq!(sql(&format!("SELECT count(*) FROM {}", place.table)), "0");
}

#[tokio::test]
async fn urls_that_cannot_be_used_are_refused_without_their_password() {
    for (url, word) in [
        ("redis://me:hunter2@127.0.0.1/shop".to_owned(), "another scheme"),
        (format!("{}://me:hunter2@127.0.0.1:port/shop", fixture::SCHEME), "cannot be read"),
        (format!("{}://me:hunter2@127.0.0.1/shop?{MODE}=on", fixture::SCHEME), &format!("`{MODE}` is one of")),
    ] {
        let error = ServerStore::connect(&url).await.unwrap_err();
        let told = format!("{error} {error:?} {:?}", ServerStore::builder(&url));
        assert!(told.contains(word) && told.contains(&format!("{}://USER", fixture::SCHEME)), "{told}");
        assert!(!told.contains("hunter2"), "{told}");
    }
}
