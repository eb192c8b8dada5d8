//! Errors of a server that stops, closes connections, or has tables of other programs.
use std::sync::Arc;
use std::time::Duration;

use idempotent_core::{Claim, InFlight, Settled, State, Store, StoreErrorKind};
use sqlx::pool::PoolOptions;

use super::fixture::{Db, Place, Server, Store as ServerStore, creating};
use super::setup::refused;
use crate::support::{done, held, key, request};

async fn own(server: &Server) -> ServerStore {
    creating(ServerStore::builder(server.url())).timeout(Duration::from_secs(2)).connect().await.unwrap()
}

/// Until the server is found again: a pool has connections that do not know yet that they are dead.
async fn patiently<T>(mut ask: impl AsyncFnMut() -> Result<T, idempotent_core::StoreError>) -> T {
    for _ in 0..1_000 {
        match ask().await {
            Ok(answer) => return answer,
            Err(error) => assert!(error.is_worth_a_retry(), "{error}"),
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("the server is back, and not found");
}

#[tokio::test]
async fn acknowledged_writes_survive_a_kill_of_the_server() {
    let server = Server::start();
    let store = own(&server).await;
    store.claim(&request(&key("a"), 1)).await.unwrap();
    assert_eq!(store.complete(&held(&key("a"), 1), &done(b"paid")).await.unwrap(), Settled::Done);
    store.claim(&request(&key("b"), 1)).await.unwrap();
    server.kill();
    let error = store.claim(&request(&key("c"), 1)).await.unwrap_err();
    assert!(matches!(error.kind(), StoreErrorKind::Ambiguous | StoreErrorKind::NotApplied), "{error}");
    server.restart();
    let claim = patiently(async || store.claim(&request(&key("a"), 2)).await).await;
    assert!(matches!(claim, Claim::Consumed(_)), "{claim:?}");
    let claim = patiently(async || store.claim(&request(&key("b"), 2)).await).await;
    assert!(matches!(claim, Claim::InFlight(InFlight::Leased { .. })), "{claim:?}");
    let settled = patiently(async || store.complete(&held(&key("b"), 1), &done(b"paid")).await).await;
    assert_eq!(settled, Settled::Done);
}

#[tokio::test]
async fn connections_that_were_cut_are_made_again() {
    let server = Server::start();
    let store = own(&server).await;
    store.claim(&request(&key("a"), 1)).await.unwrap();
    server.close_all_connections();
    let claim = patiently(async || store.claim(&request(&key("a"), 1)).await).await;
    assert!(matches!(claim, Claim::Acquired(_)), "{claim:?}");
}

#[tokio::test]
async fn a_stalled_server_leaves_the_outcome_unknown_and_later_calls_continue() {
    let server = Server::start();
    let pool =
        PoolOptions::<Db>::new().max_connections(1).test_before_acquire(false).connect_lazy(&server.url()).unwrap();
    let store = creating(ServerStore::on_pool(pool.clone())).timeout(Duration::from_secs(2)).connect().await.unwrap();
    store.claim(&request(&key("a"), 1)).await.unwrap();
    // A pool looks at a connection that it gets back.
    while pool.num_idle() < 1 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    server.pause();
    let renewed = store.renew(&held(&key("a"), 1), Duration::from_secs(60)).await;
    server.resume();
    refused(renewed, StoreErrorKind::Ambiguous, &["no answer", "2s"]);
    let renewed = patiently(async || store.renew(&held(&key("a"), 1), Duration::from_secs(60)).await).await;
    assert_eq!(renewed, Settled::Done);
}

#[tokio::test]
async fn no_value_of_a_record_is_in_an_error() {
    let place = Place::new();
    let store = place.open().await;
    place.refuse_claims();
    let a = key("card hush");
    let error = store.claim(&request(&a, 1)).await.unwrap_err();
    let told = format!("{error} {error:?}");
    assert_eq!(error.kind(), StoreErrorKind::Foreign, "{told}");
    assert!(!told.contains("hush") && !told.contains("68757368"), "{told}");
}

#[tokio::test]
async fn a_store_on_a_pool_of_the_users_shares_its_connections() {
    let place = Place::new();
    let pool = place.other();
    let store = creating(ServerStore::on_pool(pool.clone()).table(&place.table)).connect().await.unwrap();
    let store: Arc<dyn Store> = Arc::new(store);
    assert!(matches!(store.claim(&request(&key("a"), 1)).await.unwrap(), Claim::Acquired(_)));
    let record = store.peek(&key("a")).await.unwrap().unwrap();
    assert!(matches!(record.state, State::Consuming { .. }));
    pool.close().await;
    refused(store.peek(&key("a")).await, StoreErrorKind::NotApplied, &["pool", "closed"]);
}
