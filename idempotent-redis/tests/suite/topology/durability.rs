//! Waiting for replicas.
use std::time::Duration;

use idempotent_core::{Claim, Settled, StateKind, Store, StoreErrorKind};
use idempotent_harness::servers::{RedisReplicas, RedisServer};
use idempotent_redis::{Durability, RedisCounts, RedisStore};

use crate::topology::{ask, done, granted, held, key, state};

async fn waiting(url: String, replicas: u32, millis: u64) -> RedisStore {
    let durability = Durability::wait(replicas, Duration::from_millis(millis));
    RedisStore::builder(url).cache(None).durability(durability).connect().await.unwrap()
}

fn waits(server: &RedisServer) -> String {
    let stats = server.command(&["INFO", "commandstats"]).text();
    stats.lines().find_map(|line| line.strip_prefix("cmdstat_wait:calls=")?.split(',').next()).unwrap_or("0").to_owned()
}

#[tokio::test]
async fn a_replicated_claim_is_granted_and_renewals_and_releases_do_not_wait() {
    let group = RedisReplicas::start(1);
    // Long, because the replica may be slow on a busy machine.
    let store = waiting(group.url(), 1, 30_000).await;
    let request = ask(key("a", 1), 1);
    granted(store.claim(&request).await);
    assert_eq!(store.complete(&held(&request), &done()).await.unwrap(), Settled::Done);
    let replica = group.replica().command(&["EXISTS", request.key.as_str()]);
    assert_eq!(replica.integer(), Some(1));

    let request = ask(key("a", 2), 1);
    granted(store.claim(&request).await);
    let before = waits(group.primary());
    assert_eq!(store.renew(&held(&request), request.lease).await.unwrap(), Settled::Done);
    let release = idempotent_core::Release {
        kind: idempotent_core::ReleaseKind::Delete,
        delay: Duration::ZERO,
        retention: Duration::ZERO,
        error: "".into(),
    };
    assert_eq!(store.release(&held(&request), &release).await.unwrap(), Settled::Done);
    assert_eq!((waits(group.primary()), store.counts()), (before.clone(), RedisCounts::default()));
    assert_ne!(before, "0");
}

#[tokio::test]
async fn a_claim_without_replicas_fails_and_is_released() {
    let group = RedisReplicas::start(1);
    let store = waiting(group.url(), 1, 50).await;
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
    granted(waiting(group.url(), 1, 30_000).await.claim(&request).await);
}

#[tokio::test]
async fn a_takeover_that_no_replica_has_is_undone_and_the_attempts_stay_counted() {
    let group = RedisReplicas::start(1);
    let plain = RedisStore::builder(group.url()).cache(None).connect().await.unwrap();
    let store = waiting(group.url(), 1, 50).await;
    let first = idempotent_core::ClaimRequest { lease: Duration::from_millis(1), ..ask(key("a", 1), 1) };
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
    let store = waiting(group.url(), 1, 30_000).await;
    let request = ask(key("a", 1), 1);
    granted(store.claim(&request).await);
    group.cut_links();
    let hasty = waiting(group.url(), 1, 50).await;
    assert_eq!(hasty.complete(&held(&request), &done()).await.unwrap(), Settled::Done);
    assert_eq!(state(&hasty, &request.key).await, StateKind::Consumed);
    assert_eq!((hasty.counts().completions_not_replicated, hasty.counts().claims_not_replicated), (1, 0));
}

#[tokio::test]
async fn a_claim_repeated_over_another_connection_does_not_count_as_durable() {
    let group = RedisReplicas::start(1);
    let plain = RedisStore::builder(group.url()).cache(None).connect().await.unwrap();
    // The replica is connected but delayed. It has acknowledged all writes of a new connection, of which there are
    // none.
    group.replica().pause();
    let request = ask(key("a", 1), 1);
    granted(plain.claim(&request).await);
    let error = waiting(group.url(), 1, 50).await.claim(&request).await.unwrap_err();
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
    let store = waiting(server.url(), 1, 300).await;
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
    let plain = RedisStore::builder(group.url()).cache(None).connect().await.unwrap();
    let request = ask(key("a", 1), 1);
    granted(plain.claim(&request).await);
    // As if an operator had forgotten the key in between.
    let gone = |text: &str| {
        if text.contains("-- Renews leases") { "#!lua\nreturn {1, 1, 'A'}".to_owned() } else { text.to_owned() }
    };
    let durability = Durability::wait(1, Duration::from_secs(2));
    let store = RedisStore::builder(group.url()).cache(None).durability(durability).edit_scripts(gone);
    let error = store.connect().await.unwrap().claim(&request).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::NotApplied);
    assert!(error.to_string().contains("lost in the meantime"), "{error}");
}
