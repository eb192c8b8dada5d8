//! Stores that only read.
use std::collections::BTreeSet;
use std::time::Duration;

use idempotent_core::StoreErrorKind::{Denied, Schema};
use idempotent_core::store::{Health, Severity};
use idempotent_core::{
    Admin, Batch, CacheTier, CachedOutcome, ClaimHandle, FencingToken, KeyFilter, OrderStore, PageLimits, Purge,
    Release, ReleaseKind, Renewal, Search, StepRecord, StepState, StepStore, Store, StoreError, Timestamp,
};
use idempotent_harness::servers::{RedisReplicas, RedisServer};
use idempotent_redis::{Durability, RedisStore};

use crate::startup::{allow, assert_only_probes_were_refused, claim, cycle, find, printed, quick, said};
use crate::support::{ask, calls, done, key, open_without_cache, until};

const MINUTE: Duration = Duration::from_secs(60);
const READ_ONLY: [&str; 2] = ["`read_only(true)`", "open it without `read_only`"];

async fn reader(server: &RedisServer) -> RedisStore {
    quick(server.url()).read_only(true).connect().await.unwrap()
}

/// Returns the commands that clients and scripts have called, and that are not only reads.
fn writes(server: &RedisServer) -> Vec<String> {
    let stats = server.cli(&["INFO", "commandstats"]);
    let called = stats.lines().filter_map(|line| line.strip_prefix("cmdstat_")?.split(':').next());
    let listed = server.cli(&["COMMAND", "LIST", "FILTERBY", "ACLCAT", "write"]);
    let listed: BTreeSet<&str> = listed.lines().map(|line| line.trim_matches(['"', ' '])).chain(["publish"]).collect();
    assert!(listed.contains("set") && listed.contains("del"), "{listed:?}");
    called.filter(|command| listed.contains(command)).map(str::to_owned).collect()
}

/// Uses each operation that only reads.
async fn read(store: &RedisStore) {
    store.check().await.unwrap();
    store.evicted_keys().await.unwrap();
    store.peek(&key("consumed")).await.unwrap();
    store.search(&KeyFilter::all(), None, PageLimits::default()).await.unwrap();
    store.load(&key("stream")).await.unwrap();
    store.fast_tier().recall(&key("fact")).await.unwrap();
}

#[tokio::test]
async fn a_read_only_store_sends_no_command_that_writes() {
    let server = RedisServer::start();
    server.command(&["CONFIG", "RESETSTAT"]);
    // The server could not wait for its disk, which only concerns writes.
    let durability = Durability::wait_for_disk(0, Duration::from_millis(100));
    let store = quick(server.url()).read_only(true).durability(durability).connect().await.unwrap();
    read(&store).await;
    assert_eq!(server.command(&["DBSIZE"]).integer(), Some(0), "not even the epoch");
    assert_eq!(writes(&server), [""; 0]);

    let writer = open_without_cache(&server).await;
    cycle(&writer, "consumed").await.unwrap();
    server.command(&["CONFIG", "RESETSTAT"]);
    assert!(store.peek(&key("consumed")).await.unwrap().is_some());
    assert_eq!(store.search(&KeyFilter::all(), None, PageLimits::default()).await.unwrap().entries.len(), 1);
    read(&reader(&server).await).await;
    assert_eq!(writes(&server), [""; 0]);
    cycle(&writer, "other").await.unwrap();
    assert!(writes(&server).contains(&"set".to_owned()), "a write is seen");
}

/// Calls each method that writes, and returns the results.
async fn write(store: &RedisStore, held: &ClaimHandle) -> Vec<(&'static str, Result<(), StoreError>)> {
    let release = Release { kind: ReleaseKind::Delete, delay: Duration::ZERO, retention: MINUTE, error: "no".into() };
    let step = StepRecord { name: "pay".into(), place: 0, state: StepState::Done, value: None };
    let fact = CachedOutcome { fencing: FencingToken(1), fingerprint: None, value: None, until: Timestamp(1 << 60) };
    let (tier, key, stream) = (store.fast_tier(), key("new"), key("stream"));
    let mut all = vec![
        ("claim", store.claim(&ask("new", 7)).await.map(drop)),
        ("renew", store.renew(held, MINUTE).await.map(drop)),
        ("complete", store.complete(held, &done(None)).await.map(drop)),
        ("release", store.release(held, &release).await.map(drop)),
        ("purge", store.purge(10).await.map(drop)),
        ("forget", store.forget(&held.key, FencingToken(1), true, MINUTE).await.map(drop)),
        ("steps", store.steps(held, MINUTE).await.map(drop)),
        ("note", store.note(held, &step, MINUTE).await.map(drop)),
        ("compare_and_swap", store.compare_and_swap(&stream, None, b"next", MINUTE).await.map(drop)),
        ("remember", tier.remember(&key, &fact, MINUTE).await.map(drop)),
        ("bar", tier.bar(&key, MINUTE).await),
    ];
    let batch = store.claim_all(&[ask("new", 7), ask("newer", 7)]).await;
    all.extend(batch.into_iter().map(|claim| ("claim_all", claim.map(drop))));
    let batch = store.renew_all(&[(held.clone(), MINUTE)]).await;
    all.extend(batch.into_iter().map(|renewed| ("renew_all", renewed.map(drop))));
    let batch = store.complete_all(&[(held.clone(), done(None))]).await;
    all.extend(batch.into_iter().map(|completed| ("complete_all", completed.map(drop))));
    let renewing = store.renewal_store().await.unwrap();
    all.push(("renewal_store", renewing.renew(held, MINUTE).await.map(drop)));
    all
}

#[tokio::test]
async fn each_method_that_writes_is_refused_before_a_command_is_sent() {
    let server = RedisServer::start();
    let writer = open_without_cache(&server).await;
    let held = claim(&writer, "held").await.unwrap();
    // The cache must not answer either.
    let store = RedisStore::builder(server.url()).read_only(true).connect().await.unwrap();
    let stored = |name: &str| server.command(&["GET", key(name).as_str()]);
    let (before, scripts) = (stored("held"), calls(&server, "evalsha"));
    let results = write(&store, &held).await;
    assert_eq!(results.len(), 16);
    for (method, result) in results {
        println!("{method}");
        said(result, Denied, &READ_ONLY);
    }
    // The renewal store has probed once whether it may call scripts.
    assert_eq!(calls(&server, "evalsha"), scripts + 1);
    assert_eq!(stored("held"), before);
    assert_eq!(server.command(&["DBSIZE"]).integer(), Some(2), "the record and the epoch");
}

#[tokio::test]
async fn a_read_only_watch_ends_with_the_run_and_leaves_no_mark() {
    let server = RedisServer::start();
    let writer = open_without_cache(&server).await;
    let held = claim(&writer, "held").await.unwrap();
    let store = reader(&server).await;
    let record = || server.command(&["GET", held.key.as_str()]);
    let (before, reads) = (record(), calls(&server, "evalsha"));
    let watching = tokio::spawn(store.capabilities().watch.unwrap().watch(&held.key));
    until("the first look", async || calls(&server, "evalsha") > reads).await;
    assert_eq!(record(), before);
    assert!(!watching.is_finished());
    writer.complete(&held, &done(None)).await.unwrap();
    tokio::time::timeout(MINUTE, watching).await.expect("the watch ends").unwrap();
}

#[tokio::test]
async fn a_server_that_only_matters_to_workers_is_read() {
    let server = RedisServer::builder().args(["--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"]).start();
    said(RedisStore::connect(server.url()).await, Schema, &["`allkeys-lru`"]);
    let store = reader(&server).await;
    let report = store.check().await.unwrap();
    assert_eq!(find(&report, "eviction").severity(), Severity::Refuse, "{report}");
    let group = RedisReplicas::start(1);
    read(&reader(group.replica()).await).await;
}

#[tokio::test]
async fn a_namespace_of_another_protocol_is_not_read() {
    let server = RedisServer::start();
    server.command(&["SET", "idempotent:epoch", "2"]);
    let opened = quick(server.url()).read_only(true).connect().await;
    said(opened, Schema, &["`idempotent:epoch` is 2", "protocol 1"]);
    assert_eq!(server.command(&["GET", "idempotent:epoch"]).text(), "2");
}

#[tokio::test]
async fn a_user_without_permission_to_write_is_enough() {
    let server = RedisServer::start();
    cycle(&open_without_cache(&server).await, "consumed").await.unwrap();
    let builder = || quick(format!("redis://reader:hunter2@{}", server.address())).read_only(true);
    allow(&server, "reader", "");
    let text = said(builder().connect().await, Denied, &["the user `reader` lacks `+eval"]);
    let rule = printed(&text);
    assert!(!rule.contains("+set") && !rule.contains("+del") && !rule.contains("+publish"), "{rule}");
    allow(&server, "reader", &rule);
    server.command(&["ACL", "LOG", "RESET"]);
    let store = builder().connect().await.unwrap();
    read(&store).await;
    assert!(store.peek(&key("consumed")).await.unwrap().is_some());
    assert_only_probes_were_refused(&server);
    allow(&server, "reader", &rule.replace("+get ", ""));
    said(builder().connect().await, Denied, &["lacks `+get`"]);
}
