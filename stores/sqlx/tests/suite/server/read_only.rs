//! Stores that only read, and the status of the schema, on each server.
use std::any::Any;
use std::sync::Arc;

use idempotent_core::{ClaimMode, KeyFilter, PageLimits, Search, Store, StoreErrorKind, TransactionSource};
use idempotent_sqlx::SchemaProblemKind;
use idempotent_testkit::DamageInjector;
use sqlx::Transaction;

use super::fixture::{Db, Place, Store as ServerStore, sql};
use super::setup::refused;
use crate::read_only::{all_are_refused, write};
use crate::schema_status::follows_the_database;
use crate::support::{done, held, key, request};

#[tokio::test]
async fn the_server_refuses_each_write_of_a_read_only_store() {
    let place = Place::new();
    let writer = place.open().await;
    for name in ["consumed", "held"] {
        writer.claim(&request(&key(name), 1)).await.unwrap();
    }
    writer.complete(&held(&key("consumed"), 1), &done(b"paid")).await.unwrap();
    let before = place.rows().look(&key("held")).await;
    let store = place.builder().create(false).read_only(true).connect().await.unwrap();
    assert_eq!(store.peek(&key("consumed")).await.unwrap(), writer.peek(&key("consumed")).await.unwrap());
    assert_eq!(store.search(&KeyFilter::all(), None, PageLimits::default()).await.unwrap().entries.len(), 2);
    let mut results = write(&store).await;
    let run: Box<dyn Any> = store.capabilities().transact.unwrap().transactional_run(ClaimMode::Inside);
    let run = run.downcast::<Arc<dyn TransactionSource<Transaction<'static, Db>>>>().unwrap();
    results[0].1 = run.claim(&request(&key("in a transaction"), 1)).await.map(drop);
    all_are_refused(results);
    all_are_refused(write(&store).await);
    assert_eq!(place.rows().look(&key("held")).await, before);
    assert_eq!(sql(&format!("SELECT count(*) FROM {}", place.table)), "2");
}

#[tokio::test]
async fn a_read_only_store_never_creates_a_table() {
    let place = Place::new();
    let open = place.builder().read_only(true).connect().await;
    refused(open, StoreErrorKind::Schema, &["`read_only(true)` excludes `create(true)`", "remove one"]);
    let open = place.builder().create(false).read_only(true).connect().await;
    refused(open, StoreErrorKind::Schema, &[&place.table, "missing", "`create(true)`"]);
    let open = ServerStore::on_pool(place.other()).read_only(true).connect().await;
    refused(open, StoreErrorKind::Schema, &["connections of the store's own", "by its URL"]);
    assert!(!place.has(&place.table) && !place.has(&format!("{}_migrations", place.table)));
}

#[tokio::test]
async fn the_status_of_a_schema_follows_its_tables() {
    let place = Place::new();
    // The server would refuse a write.
    let reader = || place.builder().create(false).read_only(true);
    follows_the_database(
        &place.table,
        &reader().schema_steps().unwrap(),
        async |text| drop(sql(&text)),
        async || reader().schema_status().await,
        async || reader().connect().await.unwrap_err(),
    )
    .await;
    let by_pool = ServerStore::on_pool(place.other()).table(&place.table).schema_status().await.unwrap();
    assert_eq!(by_pool.problem.unwrap().kind(), SchemaProblemKind::ForeignTable);
}
