//! Behavior of PostgreSQL only.
use std::time::Duration;

use idempotent_core::{Claim, InFlight, Settled, Store, StoreErrorKind};
use idempotent_harness::servers::PostgresServer;
use idempotent_sqlx::PostgresStore;
use sqlx::AssertSqlSafe;

use crate::postgres::fixture::{Place, creating, sql};
use crate::postgres::setup::refused;
use crate::support::{done, held, key, request};

#[tokio::test]
async fn a_concurrent_migration_is_waited_for() {
    let place = Place::new();
    let mut other =
        sqlx::Connection::begin_with(Box::leak(Box::new(place.other().acquire().await.unwrap().detach())), "BEGIN")
            .await
            .unwrap();
    let lock = sqlx::query("SELECT pg_advisory_xact_lock($1)").bind(0x6964_656d_706f_7465_i64);
    lock.execute(&mut *other).await.unwrap();
    let opening = tokio::spawn(place.builder().connect());
    let waits = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted";
    while sql(waits) == "0" {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert!(!opening.is_finished());
    // The dropped transaction has no effect.
    other.rollback().await.unwrap();
    opening.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_missing_permission_is_reported_with_the_grant() {
    let place = Place::new();
    place.open().await;
    sql(&format!("CREATE ROLE reader_{0} LOGIN; GRANT SELECT ON {0}, {0}_migrations TO reader_{0}", place.table));
    let url = place.url.replace("postgres@", &format!("reader_{}@", place.table));
    let store = PostgresStore::builder(url).table(&place.table).connect().await.unwrap();
    let claim = store.claim(&request(&key("a"), 1)).await;
    let grants = ["GRANT SELECT, INSERT, UPDATE, DELETE", &place.table, "CREATE on the schema", "42501"];
    refused(claim, StoreErrorKind::Denied, &grants);
}

/// The codes of PostgreSQL 17 are raised by a trigger, so that older servers have them, too.
#[tokio::test]
async fn a_session_that_the_server_ended_is_named_and_its_connection_is_dropped() {
    let place = Place::new();
    let name = &place.table;
    let store = PostgresStore::builder(format!("{}?application_name={name}", place.url)).table(name).connections(1);
    let store = creating(store).connect().await.unwrap();
    let pids =
        || sql(&format!("SELECT string_agg(pid::text, ',') FROM pg_stat_activity WHERE application_name = '{name}'"));
    store.claim(&request(&key("warm"), 1)).await.unwrap();
    for (code, word) in [
        ("25P03", "idle_in_transaction_session_timeout"),
        ("25P04", "transaction_timeout"),
        ("57P05", "idle_session_timeout"),
        ("57P01", "ended the connection"),
    ] {
        let before = pids();
        sql(&format!(
            "CREATE FUNCTION ends_{name}() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION ''ended'' USING ERRCODE = \
             ''{code}''; END'; CREATE TRIGGER ends BEFORE INSERT ON {name} EXECUTE FUNCTION ends_{name}()"
        ));
        refused(store.claim(&request(&key(code), 1)).await, StoreErrorKind::Ambiguous, &[word, code]);
        sql(&format!("DROP TRIGGER ends ON {name}; DROP FUNCTION ends_{name}"));
        store.claim(&request(&key(code), 1)).await.unwrap();
        // A dropped connection ends on the server a moment later.
        while pids().contains(&before) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

#[tokio::test]
async fn a_database_that_is_read_only_is_one_to_leave() {
    let place = Place::new();
    place.open().await;
    let url = format!("{}?options=-c%20default_transaction_read_only%3Don", place.url);
    let store = PostgresStore::builder(url).table(&place.table).connect().await.unwrap();
    let claim = store.claim(&request(&key("a"), 1)).await;
    refused(claim, StoreErrorKind::NotApplied, &["read-only", "name the primary", "25006"]);
}

#[tokio::test]
async fn a_claim_never_waits_for_somebody_who_has_the_key_in_an_open_transaction() {
    let place = Place::new();
    let (store, a) = (place.open().await, key("a"));
    let claim = request(&a, 1);
    store.claim(&claim).await.unwrap();
    store.release(&held(&a, 1), &crate::support::release(idempotent_core::ReleaseKind::Vacate)).await.unwrap();
    let other = place.other();
    let mut open = other.begin().await.unwrap();
    // As a claim does, and as a completion in the user's transaction will do.
    let lock = AssertSqlSafe(format!("SELECT pg_advisory_xact_lock({})", lock_of(&place, &a)));
    sqlx::query(lock).execute(&mut *open).await.unwrap();
    assert_eq!(store.claim(&claim).await.unwrap(), Claim::InFlight(InFlight::Busy));
    let fresh = request(&key("b"), 1);
    assert!(matches!(store.claim(&fresh).await.unwrap(), Claim::Acquired(_)), "another key is free");
    open.rollback().await.unwrap();
    assert!(matches!(store.claim(&claim).await.unwrap(), Claim::Acquired(_)));
}

/// The first half of the key's hash, with the table's.
pub(super) fn lock_of(place: &Place, key: &idempotent_core::Key) -> i64 {
    let high = u64::from_be_bytes(key.hash().to_be_bytes()[..8].try_into().unwrap());
    (high ^ place.salt()).cast_signed()
}

#[tokio::test]
async fn one_statement_finds_out_that_its_connections_were_cut() {
    let server = PostgresServer::start();
    let store = creating(PostgresStore::builder(server.url())).connect().await.unwrap();
    let asks: Vec<_> = (0..4).map(|n| request(&key(&n.to_string()), 1)).collect();
    futures_util::future::join_all(asks.iter().map(|ask| store.claim(ask))).await;
    server.close_all_connections();
    store.claim(&asks[0]).await.unwrap_err();
    for ask in &asks {
        assert!(matches!(store.claim(ask).await.unwrap(), Claim::Acquired(_)), "the others are not tried one by one");
    }
}

#[tokio::test]
async fn one_task_needs_one_connection_and_keeps_it() {
    let server = PostgresServer::start();
    let url = format!("{}?application_name=one", server.url());
    let store = creating(PostgresStore::builder(url)).connect().await.unwrap();
    let mine = || {
        server
            .psql("postgres", "SELECT string_agg(pid::text, ',') FROM pg_stat_activity WHERE application_name = 'one'")
    };
    let run = async |n: u32| {
        let key = key(&n.to_string());
        store.claim(&request(&key, 1)).await.unwrap();
        store.complete(&held(&key, 1), &done(b"paid")).await.unwrap();
        mine()
    };
    run(0).await;
    // The connection that opened the store may close later.
    let kept = (0..1_000).map(|_| mine()).find(|pids| !pids.contains(',')).expect("one connection is left");
    assert!(!kept.is_empty(), "it is kept");
    for n in 1..20 {
        assert_eq!(run(n).await, kept);
    }
}

/// With and without the name of its schema, a table is the same, and so are the locks of its claims.
#[tokio::test]
async fn two_names_of_one_table_have_the_same_locks() {
    let place = Place::new();
    let (store, named) = (place.open().await, place.builder().schema("public").connect().await.unwrap());
    let other = place.other();
    let mut transaction = other.begin().await.unwrap();
    let claim = store.claim_in(&mut transaction, &request(&key("a"), 1)).await.unwrap();
    assert!(matches!(claim, Claim::Acquired(_)));
    let settled = store.complete_in(&mut transaction, &held(&key("a"), 1), &done(b"paid")).await.unwrap();
    assert_eq!(settled, Settled::Done);
    let claim = named.claim(&request(&key("a"), 2)).await.unwrap();
    assert_eq!(claim, Claim::InFlight(InFlight::Busy), "told at once");
    transaction.commit().await.unwrap();
    assert!(matches!(named.claim(&request(&key("a"), 2)).await.unwrap(), Claim::Consumed(_)));
}
