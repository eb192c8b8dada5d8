//! Waiting for replicas, and repeated writes.
use std::time::Duration;

use idempotent_core::{
    Batch, Claim, ClaimHandle, ClaimRequest, ReleaseKind, Settled, StateKind, Store, StoreErrorKind,
};
use idempotent_harness::servers::{RedisReplicas, RedisServer};
use idempotent_redis::{Durability, RedisCounts, RedisStore, RedisStoreBuilder};

use crate::support::{calls, put_down};
use crate::topology::{ask, done, granted, held, key, state, without_cache};

fn builder(url: String, millis: u64) -> RedisStoreBuilder {
    let durability = Durability::wait(1, Duration::from_millis(millis));
    RedisStore::builder(url).cache(None).durability(durability)
}

async fn waiting(url: String, millis: u64) -> RedisStore {
    builder(url, millis).connect().await.unwrap()
}

/// Opens a store that waits for one replica, in which `does` replaces the script that contains `script`.
async fn with_script(url: String, millis: u64, script: &'static str, does: &'static str) -> RedisStore {
    let edit = move |text: &str| if text.contains(script) { format!("#!lua\n{does}") } else { text.to_owned() };
    builder(url, millis).edit_scripts(edit).connect().await.unwrap()
}

#[tokio::test]
async fn a_replicated_claim_is_granted_and_renewals_and_releases_do_not_wait() {
    let group = RedisReplicas::start(1);
    // Long, because the replica may be slow on a busy machine.
    let store = waiting(group.url(), 30_000).await;
    let request = ask(key("a", 1), 1);
    granted(store.claim(&request).await);
    assert_eq!(store.complete(&held(&request), &done()).await.unwrap(), Settled::Done);
    let replica = group.replica().command(&["EXISTS", request.key.as_str()]);
    assert_eq!(replica.integer(), Some(1));

    let request = ask(key("a", 2), 1);
    granted(store.claim(&request).await);
    let before = calls(group.primary(), "wait");
    assert_eq!(store.renew(&held(&request), request.lease).await.unwrap(), Settled::Done);
    let delete = put_down(ReleaseKind::Delete);
    assert_eq!(store.release(&held(&request), &delete).await.unwrap(), Settled::Done);
    assert_eq!((calls(group.primary(), "wait"), store.counts()), (before, RedisCounts::default()));
    assert_ne!(before, 0);
}

#[tokio::test]
async fn a_claim_without_replicas_fails_and_is_released() {
    let group = RedisReplicas::start(1);
    let store = waiting(group.url(), 50).await;
    group.cut_links();
    let request = ask(key("a", 1), 1);
    let error = store.claim(&request).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::NotApplied);
    let text = error.to_string();
    assert!(text.contains("0 of 1 requested replicas") && text.contains("released"), "{text}");
    assert_eq!(state(&store, &request.key).await, StateKind::Absent);

    let requests: Vec<_> = (0..5).map(|number| ask(key("b", number), 1)).collect();
    for claim in store.capabilities().batch.unwrap().claim_all(&requests).await {
        assert_eq!(claim.unwrap_err().kind(), StoreErrorKind::NotApplied);
    }
    for request in &requests {
        assert_eq!(state(&store, &request.key).await, StateKind::Absent);
    }
    assert_eq!(store.counts().claims_not_replicated, 6);

    group.mend_links();
    granted(waiting(group.url(), 30_000).await.claim(&request).await);
}

#[tokio::test]
async fn a_takeover_that_no_replica_has_is_undone_and_the_attempts_stay_counted() {
    let group = RedisReplicas::start(1);
    let plain = without_cache(group.url()).await;
    let store = waiting(group.url(), 50).await;
    let first = ClaimRequest { lease: Duration::from_millis(1), ..ask(key("a", 1), 1) };
    let before = granted(plain.claim(&first).await);
    group.cut_links();
    // In flight for the rest of that ms.
    let mut refused = store.claim(&ask(key("a", 1), 2)).await;
    while let Ok(Claim::InFlight(_)) = refused {
        refused = store.claim(&ask(key("a", 1), 2)).await;
    }
    assert_eq!(refused.unwrap_err().kind(), StoreErrorKind::NotApplied);
    assert_eq!(state(&store, &first.key).await, StateKind::Vacant);
    let again = granted(plain.claim(&ask(key("a", 1), 3)).await);
    assert_eq!((again.attempt, again.taken_over), (2, Some(before.fencing)));
    assert!(again.fencing > before.fencing);
}

#[tokio::test]
async fn a_completion_without_replicas_is_kept_and_counted() {
    let group = RedisReplicas::start(1);
    let store = waiting(group.url(), 30_000).await;
    let request = ask(key("a", 1), 1);
    granted(store.claim(&request).await);
    group.cut_links();
    let hasty = waiting(group.url(), 50).await;
    assert_eq!(hasty.complete(&held(&request), &done()).await.unwrap(), Settled::Done);
    assert_eq!(state(&hasty, &request.key).await, StateKind::Consumed);
    assert_eq!((hasty.counts().completions_not_replicated, hasty.counts().claims_not_replicated), (1, 0));
}

#[tokio::test]
async fn a_claim_repeated_over_another_connection_does_not_count_as_durable() {
    let group = RedisReplicas::start(1);
    let plain = without_cache(group.url()).await;
    // The replica is connected but delayed. It has acknowledged all writes of a new connection, of which there are
    // none.
    group.replica().pause();
    let request = ask(key("a", 1), 1);
    granted(plain.claim(&request).await);
    let error = waiting(group.url(), 50).await.claim(&request).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::NotApplied);
    assert_eq!(state(&plain, &request.key).await, StateKind::Absent);
    group.replica().resume();
}

#[tokio::test]
async fn a_server_that_cannot_wait_for_its_disk_is_refused_on_connect() {
    let server = RedisServer::start();
    let durability = Durability::wait_for_disk(0, Duration::from_millis(50));
    let error = RedisStore::builder(server.url()).durability(durability).connect().await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Schema);
    assert!(error.to_string().contains("7.2") && error.to_string().contains("appendonly"), "{error}");
}

#[tokio::test]
async fn callers_that_give_up_during_a_wait_do_not_trigger_the_watchdog() {
    let server = RedisServer::start();
    let store = waiting(server.url(), 300).await;
    // Far more waits than fit into the response timeout.
    for at in 0..30 {
        let request = ask(key("a", at), 1);
        let given_up = Duration::from_millis(50);
        if at % 2 == 0 {
            let _ = tokio::time::timeout(given_up, store.claim(&request)).await;
        } else {
            let all = std::slice::from_ref(&request);
            let _ = tokio::time::timeout(given_up, store.capabilities().batch.unwrap().claim_all(all)).await;
        }
    }
    store.peek(&key("a", 0)).await.unwrap();
    // The wait is over by then, and the next one starts.
    assert_eq!(store.claim(&ask(key("b", 1), 1)).await.unwrap_err().kind(), StoreErrorKind::NotApplied);
}

#[tokio::test]
async fn a_claim_lost_during_its_confirmation_is_not_granted() {
    let group = RedisReplicas::start(1);
    let plain = without_cache(group.url()).await;
    let request = ask(key("a", 1), 1);
    granted(plain.claim(&request).await);
    // As if an operator had forgotten the key in between.
    let store = with_script(group.url(), 2_000, "-- Renews leases", "return {1, 1, 'A'}").await;
    let error = store.claim(&request).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::NotApplied);
    assert!(error.to_string().contains("lost in the meantime"), "{error}");
}

const REFUSES: &str = "return redis.error_reply('NOREPLICAS Not enough good replicas to write.')";

/// Checks that a recorded claim does not fail as not applied. `looking` reads the record.
async fn claim_is_not_denied(store: &RedisStore, looking: &RedisStore, request: &ClaimRequest) {
    let error = store.claim(request).await.unwrap_err();
    let (kind, state) = (error.kind(), state(looking, &request.key).await);
    assert!(kind != StoreErrorKind::NotApplied || state == StateKind::Absent, "{kind:?} and yet {state:?}: {error}");
}

/// The claim is applied and cannot be released, so `NotApplied` would be wrong.
#[tokio::test]
async fn a_claim_that_could_not_be_released_does_not_fail_as_not_applied() {
    let server = RedisServer::start();
    let store = with_script(server.url(), 20, "Ends attempts that did not succeed", REFUSES).await;
    claim_is_not_denied(&store, &store, &ask(key("a", 1), 1)).await;
}

/// The renewal that confirms the claim fails, but the claim is recorded.
#[tokio::test]
async fn a_repeated_claim_that_is_recorded_does_not_fail_as_not_applied() {
    let group = RedisReplicas::start(1);
    let plain = without_cache(group.url()).await;
    let request = ask(key("a", 1), 1);
    granted(plain.claim(&request).await);
    let store = with_script(group.url(), 30_000, "-- Renews leases", REFUSES).await;
    claim_is_not_denied(&store, &plain, &request).await;
}

/// The first reply was lost, and the new connection has nothing to wait for.
#[tokio::test]
async fn a_completion_repeated_over_another_connection_does_not_count_as_durable() {
    let group = RedisReplicas::start(1);
    let plain = without_cache(group.url()).await;
    let request = ask(key("a", 1), 1);
    let held = ClaimHandle::granted(&request, &granted(plain.claim(&request).await));
    group.replica().pause();
    assert_eq!(plain.complete(&held, &done()).await.unwrap(), Settled::Done);
    let store = waiting(group.url(), 50).await;
    assert_eq!(store.complete(&held, &done()).await.unwrap(), Settled::Done);
    let counted = store.counts().completions_not_replicated;
    group.replica().resume();
    assert_eq!(counted, 1, "the replica has nothing of it, and nobody is warned");
}

/// Batches wait one after the other on one connection, each for its own timeout.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn batches_that_wait_for_a_dead_replica_fail_as_not_applied() {
    let server = RedisServer::start();
    let store = waiting(server.url(), 300).await;
    let mut batches = tokio::task::JoinSet::new();
    for at in 0..16 {
        let store = store.clone();
        batches.spawn(async move {
            let mut claims = store.claim_all(&[ask(key("a", at), 1)]).await;
            claims.remove(0).unwrap_err().kind()
        });
    }
    let unknown = batches.join_all().await.into_iter().filter(|kind| *kind == StoreErrorKind::Ambiguous).count();
    assert_eq!(unknown, 0, "of 16, with a server that answers all the time");
}
