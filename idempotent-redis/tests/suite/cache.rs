//! The cache of consumed keys: no command for a duplicate, and no outdated reply.
use crate::support;

use std::sync::Arc;
use std::time::Duration;

use idempotent_core::{
    Admin, Batch, Claim, ClaimHandle, ClaimRequest, Completion, Consumed, Fingerprint, Settled, Store, StoreErrorKind,
};
use idempotent_harness::servers::RedisServer;
use idempotent_redis::{CacheOptions, RedisStore};
use idempotent_testkit::VirtualClock;

use crate::support::{HOUR, ask, ask_number, calls, consume, done, granted, hold, key, open, start, until};

fn is_consumed(claim: &Claim, value: Option<&[u8]>) -> bool {
    matches!(claim, Claim::Consumed(consumed) if consumed.value.as_deref() == value)
}

/// Returns a claim of the key `k` with this payload.
fn with(payload: &str, owner: u128) -> ClaimRequest {
    ClaimRequest { fingerprint: Some(Fingerprint::of_bytes(payload)), ..ask("k", owner) }
}

#[tokio::test]
async fn a_duplicate_of_this_processs_key_costs_no_command() {
    let (server, store) = start().await;
    consume(&store, "k", Some(b"result")).await;
    let before = calls(&server, "evalsha");
    for _ in 0..100 {
        assert!(is_consumed(&store.claim(&ask("k", 2)).await.unwrap(), Some(b"result")));
    }
    let batch = store.claim_all(&[ask("k", 3), ask("k", 4)]).await;
    assert!(batch.into_iter().all(|claim| is_consumed(&claim.unwrap(), Some(b"result"))));
    assert_eq!(calls(&server, "evalsha"), before);
    assert_eq!(store.counts().cache_hits, 102);
}

#[tokio::test]
async fn a_forgotten_key_is_removed_from_every_cache() {
    let server = RedisServer::start();
    let (one, other) = (open(&server).await, open(&server).await);
    let fencing = consume(&one, "k", None).await;
    assert!(is_consumed(&other.claim(&ask("k", 2)).await.unwrap(), None));
    assert_eq!(other.forget(&key("k"), fencing, false, HOUR).await.unwrap(), Settled::Done);
    // The forgetting process sees the change at once, the other one as soon as it is notified.
    granted(other.claim(&ask("k", 3)).await.unwrap());
    until("the other process is told", async || !is_consumed(&one.claim(&ask("k", 4)).await.unwrap(), None)).await;
}

#[tokio::test]
async fn a_cached_key_detects_another_payload_and_unknown_payloads_ask_the_server() {
    let server = RedisServer::start();
    let (one, other) = (open(&server).await, open(&server).await);
    let grant = granted(one.claim(&with("a", 1)).await.unwrap());
    let held = ClaimHandle { terms: None, ..ClaimHandle::granted(&with("a", 1), &grant) };
    one.complete(&held, &done(None)).await.unwrap();
    // The process that completed the key does not know the payload's fingerprint and asks once.
    let before = calls(&server, "evalsha");
    assert_eq!(one.claim(&with("b", 2)).await.unwrap(), Claim::Mismatch);
    assert_eq!(calls(&server, "evalsha"), before + 1);
    for store in [&one, &other] {
        assert!(is_consumed(&store.claim(&with("a", 3)).await.unwrap(), None));
        let before = calls(&server, "evalsha");
        assert_eq!(store.claim(&with("b", 4)).await.unwrap(), Claim::Mismatch);
        assert!(is_consumed(&store.claim(&ask("k", 5)).await.unwrap(), None));
        assert_eq!(calls(&server, "evalsha"), before);
    }
}

#[tokio::test]
async fn the_terms_of_a_grant_tell_the_process_that_completes_the_key_its_payload() {
    let (server, store) = start().await;
    let grant = granted(store.claim(&with("a", 1)).await.unwrap());
    store.complete(&ClaimHandle::granted(&with("a", 1), &grant), &done(None)).await.unwrap();
    let before = calls(&server, "evalsha");
    assert_eq!(store.claim(&with("b", 2)).await.unwrap(), Claim::Mismatch);
    assert!(is_consumed(&store.claim(&with("a", 3)).await.unwrap(), None));
    assert_eq!(calls(&server, "evalsha"), before);
}

#[tokio::test]
async fn cached_keys_expire_with_their_age_or_retention() {
    let server = RedisServer::start();
    let clock = VirtualClock::new();
    let store = RedisStore::builder(server.url()).clock(Arc::new(clock.clone())).connect().await.unwrap();
    consume(&store, "long", None).await;
    let held = hold(&store, "short", 1).await;
    let short = idempotent_core::Completion { value: None, retain: Duration::from_secs(20) };
    store.complete(&held, &short).await.unwrap();
    let asked = async |part: &str| {
        let before = calls(&server, "evalsha");
        assert!(is_consumed(&store.claim(&ask(part, 9)).await.unwrap(), None));
        calls(&server, "evalsha") - before
    };
    assert_eq!([asked("long").await, asked("short").await], [0, 0]);
    clock.jump(Duration::from_secs(20));
    assert_eq!([asked("long").await, asked("short").await], [0, 1]);
    clock.jump(Duration::from_secs(40));
    assert_eq!([asked("long").await, asked("long").await], [1, 0], "asked again after 60 s, and kept again");
}

#[tokio::test]
async fn the_cache_is_unused_without_a_subscription() {
    let (server, store) = start().await;
    consume(&store, "k", None).await;
    server.kill();
    until("the end of the connection is noticed", async || {
        match store.claim(&ask("k", 2)).await {
            // The cache is used until the end of the connection is known.
            Ok(claim) => !is_consumed(&claim, None),
            Err(error) => {
                let kind = error.kind();
                assert!(matches!(kind, StoreErrorKind::NotApplied | StoreErrorKind::Ambiguous), "{error}");
                true
            }
        }
    })
    .await;
    // The server restarts without its data, so cached keys must not be used.
    server.restart();
    until("the store is connected again", async || store.claim(&ask("other", 1)).await.is_ok()).await;
    granted(store.claim(&ask("k", 3)).await.unwrap());
}

#[tokio::test]
async fn a_cache_is_bounded_and_can_be_disabled() {
    let server = RedisServer::start();
    let mut options = CacheOptions::default();
    (options.keys, options.result_bytes) = (10, 1_000);
    let small = RedisStore::builder(server.url()).cache(options).connect().await.unwrap();
    for number in 0..50 {
        consume(&small, &format!("k{number}"), None).await;
    }
    let before = calls(&server, "evalsha");
    for number in 0..50 {
        assert!(is_consumed(&small.claim(&ask(&format!("k{number}"), 2)).await.unwrap(), None));
    }
    let asked = calls(&server, "evalsha") - before;
    assert!((25..=50).contains(&asked), "{asked} of 50 were asked for");

    let off = support::open_without_cache(&server).await;
    consume(&off, "k", None).await;
    let before = calls(&server, "evalsha");
    for _ in 0..3 {
        assert!(is_consumed(&off.claim(&ask("k", 2)).await.unwrap(), None));
    }
    assert_eq!(calls(&server, "evalsha"), before + 3);
}

#[tokio::test]
async fn a_large_result_is_not_cached_and_the_first_result_is_kept() {
    let (server, store) = start().await;
    let large = vec![7; 2 << 20];
    consume(&store, "large", Some(&large)).await;
    let before = calls(&server, "evalsha");
    assert!(is_consumed(&store.claim(&ask("large", 2)).await.unwrap(), Some(&large)));
    assert_eq!(calls(&server, "evalsha"), before + 1);

    let held = hold(&store, "k", 1).await;
    assert_eq!(store.complete(&held, &done(Some(b"first"))).await.unwrap(), Settled::Done);
    assert_eq!(store.complete(&held, &done(Some(b"second"))).await.unwrap(), Settled::Done);
    let told = store.claim(&ask("k", 2)).await.unwrap();
    let Claim::Consumed(Consumed { value, .. }) = told else { panic!("{told:?}") };
    assert_eq!(value.as_deref(), Some(&b"first"[..]));
}

#[tokio::test]
async fn an_unlimited_cache_age_is_accepted() {
    let server = RedisServer::start();
    let mut options = CacheOptions::default();
    options.max_age = Duration::MAX;
    let store = RedisStore::builder(server.url()).cache(options).connect().await.unwrap();
    let request = ask_number(1, 1);
    let Claim::Acquired(grant) = store.claim(&request).await.unwrap() else { panic!("not granted") };
    let held = ClaimHandle::granted(&request, &grant);
    let done = Completion { value: None, retain: Duration::MAX };
    assert_eq!(store.complete(&held, &done).await.unwrap(), Settled::Done);
}
