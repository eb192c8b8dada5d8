//! Requests and helpers for the tests.
pub(crate) mod fake_server;
pub(crate) mod runs;

use std::sync::Arc;
use std::time::{Duration, Instant};

use idempotent_core::{
    Claim, ClaimHandle, ClaimRequest, Completion, FencingToken, Grant, Identity, Key, OnExpiry, OwnerToken, Release,
    ReleaseKind, Scene, Store,
};
use idempotent_harness::servers::RedisServer;
use idempotent_redis::{CacheOptions, RedisStore};

pub(crate) const HOUR: Duration = Duration::from_secs(3_600);

pub(crate) fn key(part: &str) -> Key {
    Identity::new(Scene::Mq, "tests", part).key("idempotent").unwrap()
}

pub(crate) fn ask(part: &str, owner: u128) -> ClaimRequest {
    ask_for(key(part), owner)
}

pub(crate) fn ask_for(key: Key, owner: u128) -> ClaimRequest {
    ClaimRequest {
        key,
        owner: OwnerToken(owner),
        lease: Duration::from_secs(30),
        fingerprint: None,
        max_attempts: 0,
        on_expiry: OnExpiry::Takeover,
        retention: HOUR,
        display: None,
    }
}

/// Returns a claim of the key with this number, with a lease of 60 s and one attempt.
pub(crate) fn ask_number(number: u128, owner: u128) -> ClaimRequest {
    let key = Key::from_parts("idempotent:mq:a", number);
    ClaimRequest { lease: Duration::from_secs(60), max_attempts: 1, ..ask_for(key, owner) }
}

#[track_caller]
pub(crate) fn granted(claim: Claim) -> Grant {
    match claim {
        Claim::Acquired(grant) => grant,
        other => panic!("not acquired: {other:?}"),
    }
}

/// Claims a key and holds it by the number of the grant, like an executor.
pub(crate) async fn hold(store: &dyn Store, part: &str, owner: u128) -> ClaimHandle {
    let request = ask(part, owner);
    let grant = granted(store.claim(&request).await.unwrap());
    ClaimHandle::granted(&request, &grant)
}

pub(crate) fn done(value: Option<&[u8]>) -> Completion {
    Completion { value: value.map(Arc::from), retain: HOUR }
}

pub(crate) fn put_down(verdict: ReleaseKind) -> Release {
    Release { kind: verdict, delay: Duration::ZERO, retention: HOUR, error: "no stock".into() }
}

/// Claims and completes a key, and returns the fencing number.
pub(crate) async fn consume(store: &dyn Store, part: &str, value: Option<&[u8]>) -> FencingToken {
    let held = hold(store, part, 1).await;
    assert_eq!(store.complete(&held, &done(value)).await.unwrap(), idempotent_core::Settled::Done);
    held.fencing.unwrap()
}

pub(crate) async fn open(server: &RedisServer) -> RedisStore {
    RedisStore::connect(server.url()).await.unwrap()
}

/// Opens a store that always asks the server.
pub(crate) async fn open_without_cache(server: &RedisServer) -> RedisStore {
    RedisStore::builder(server.url()).cache(None::<CacheOptions>).connect().await.unwrap()
}

pub(crate) async fn start() -> (RedisServer, RedisStore) {
    let server = RedisServer::start();
    let store = open(&server).await;
    (server, store)
}

/// Starts a server, and opens a store that always asks the server.
pub(crate) async fn start_without_cache() -> (RedisServer, RedisStore) {
    let server = RedisServer::start();
    let store = open_without_cache(&server).await;
    (server, store)
}

/// Returns the number of calls of a command since the server's start, including calls by scripts.
pub(crate) fn calls(server: &RedisServer, command: &str) -> u64 {
    let name = format!("cmdstat_{command}:calls=");
    let stats = server.cli(&["INFO", "commandstats"]);
    stats.lines().find_map(|line| line.strip_prefix(&name)?.split(',').next()?.parse().ok()).unwrap_or(0)
}

/// Waits for an event instead of a time.
pub(crate) async fn until(what: &str, happened: impl AsyncFnMut() -> bool) {
    until_within(Duration::from_secs(30), what, happened).await;
}

pub(crate) async fn until_within(patience: Duration, what: &str, mut happened: impl AsyncFnMut() -> bool) {
    let began = Instant::now();
    while !happened().await {
        assert!(began.elapsed() < patience, "waited in vain for: {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}
