//! Repeated writes with a durability setting.
use std::time::Duration;

use idempotent_core::{Claim, ClaimHandle, ClaimRequest, Completion, Settled, StateKind, Store, StoreErrorKind};
use idempotent_harness::servers::{RedisReplicas, RedisServer};
use idempotent_redis::{Durability, RedisStore};

use crate::support::HOUR;
use crate::support::ask_number;

async fn waiting(url: String, millis: u64) -> RedisStore {
    let durability = Durability::wait(1, Duration::from_millis(millis));
    RedisStore::builder(url).cache(None).durability(durability).connect().await.unwrap()
}

/// Opens a store that waits for a replica, with one script that fails for lack of replicas. `script` is the beginning
/// of its text.
async fn refused(url: String, millis: u64, script: &'static str) -> RedisStore {
    let refuses = move |text: &str| {
        if text.contains(script) {
            "#!lua\nreturn redis.error_reply('NOREPLICAS Not enough good replicas to write.')".to_owned()
        } else {
            text.to_owned()
        }
    };
    let durability = Durability::wait(1, Duration::from_millis(millis));
    RedisStore::builder(url).cache(None).durability(durability).edit_scripts(refuses).connect().await.unwrap()
}

/// Checks that a recorded claim does not fail as not applied. `looking` reads the record.
async fn claim_is_not_denied(store: &RedisStore, looking: &RedisStore, request: &ClaimRequest) {
    let error = store.claim(request).await.unwrap_err();
    let state = looking.peek(&request.key).await.unwrap().map_or(StateKind::Absent, |record| record.state.kind());
    assert!(
        error.kind() != StoreErrorKind::NotApplied || state == StateKind::Absent,
        "{:?} and yet {state:?}: {error}",
        error.kind()
    );
}

/// The claim is applied and cannot be released, so `NotApplied` would be wrong.
#[tokio::test]
async fn a_claim_that_could_not_be_released_does_not_fail_as_not_applied() {
    let server = RedisServer::start();
    let store = refused(server.url(), 20, "Ends attempts that did not succeed").await;
    claim_is_not_denied(&store, &store, &ask_number(1, 1)).await;
}

/// The renewal that confirms the claim fails, but the claim is recorded.
#[tokio::test]
async fn a_repeated_claim_that_is_recorded_does_not_fail_as_not_applied() {
    let group = RedisReplicas::start(1);
    let plain = RedisStore::builder(group.url()).cache(None).connect().await.unwrap();
    let request = ask_number(1, 1);
    assert!(matches!(plain.claim(&request).await, Ok(Claim::Acquired(_))));
    let store = refused(group.url(), 30_000, "-- Renews leases").await;
    claim_is_not_denied(&store, &plain, &request).await;
}

/// The first reply was lost, and the new connection has nothing to wait for.
#[tokio::test]
async fn a_completion_repeated_over_another_connection_does_not_count_as_durable() {
    let group = RedisReplicas::start(1);
    let plain = RedisStore::builder(group.url()).cache(None).connect().await.unwrap();
    let request = ask_number(1, 1);
    let Claim::Acquired(grant) = plain.claim(&request).await.unwrap() else { panic!("not granted") };
    let held = ClaimHandle::granted(&request, &grant);
    group.replica().pause();
    let done = Completion { value: None, retain: HOUR };
    assert_eq!(plain.complete(&held, &done).await.unwrap(), Settled::Done);
    let store = waiting(group.url(), 50).await;
    assert_eq!(store.complete(&held, &done).await.unwrap(), Settled::Done);
    let counted = store.counts().completions_not_replicated;
    group.replica().resume();
    assert_eq!(counted, 1, "the replica has nothing of it, and nobody is warned");
}

/// Batches wait one after the other on one connection, each for its own timeout.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn batches_that_wait_for_a_dead_replica_fail_as_not_applied() {
    let server = RedisServer::start();
    let store = waiting(server.url(), 300).await;
    let batches = (0..16_u128).map(|at| {
        let store = store.clone();
        tokio::spawn(async move {
            let request = ask_number(at, 1);
            let said = store.capabilities().batch.unwrap().claim_all(std::slice::from_ref(&request)).await;
            said.into_iter().next().unwrap().unwrap_err().kind()
        })
    });
    let mut kinds = Vec::new();
    for batch in batches.collect::<Vec<_>>() {
        kinds.push(batch.await.unwrap());
    }
    let unknown = kinds.iter().filter(|kind| **kind == StoreErrorKind::Ambiguous).count();
    assert_eq!(unknown, 0, "of 16, with a server that answers all the time");
}
