//! States in which a server rejects calls.
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use idempotent_core::StoreErrorKind::{Ambiguous, NotApplied};
use idempotent_core::{Claim, ClaimRequest, Settled, Store, StoreError};
use idempotent_harness::servers::{RedisReplicas, RedisServer};
use idempotent_redis::RedisStore;

use crate::startup::{claim, cycle, said};
use crate::support::{ask, done, open_without_cache, start_without_cache, until};

/// Claims with a short lease. The claim gives up after a third of the lease.
async fn impatient(store: &RedisStore, name: &str) -> Result<Claim, StoreError> {
    store.claim(&ClaimRequest { lease: Duration::from_millis(150), ..ask(name, 7) }).await
}

fn says(server: &RedisServer, code: &str) -> bool {
    server.try_command(&["GET", "x"]).is_ok_and(|said| said.text().starts_with(code))
}

#[tokio::test]
async fn a_replica_rejects_claims_with_a_remedy() {
    let group = RedisReplicas::start(1);
    let store = open_without_cache(group.replica()).await;
    let parts = ["READONLY", "a replica", "redis+sentinel://"];
    said(impatient(&store, "a").await, NotApplied, &parts);
    // The replica has become the primary.
    group.replica().command(&["REPLICAOF", "NO", "ONE"]);
    cycle(&store, "a").await.unwrap();
}

#[tokio::test]
async fn calls_wait_for_a_server_that_is_loading() {
    let slow = ["--key-load-delay", "5000", "--loading-process-events-interval-bytes", "1024"];
    let server = Arc::new(RedisServer::builder().args(slow).start());
    for number in 0..300 {
        server.command(&["SET", &format!("filler {number}"), &"x".repeat(1024)]);
    }
    let store = open_without_cache(&server).await;
    server.command(&["SAVE"]);
    // DEBUG RELOAD is not an option: Redis 8.0 may then fail an assertion of its own when other clients send commands.
    let loading = thread::spawn({
        let server = server.clone();
        move || server.restart()
    });
    // The runtime does nothing meanwhile, so that the first call finds its connection gone and opens another.
    let began = Instant::now();
    while !says(&server, "LOADING") {
        assert!(began.elapsed() < Duration::from_secs(60), "the server never loads");
        thread::sleep(Duration::from_millis(2));
    }
    said(impatient(&store, "a").await, Ambiguous, &[]);
    said(impatient(&store, "a").await, NotApplied, &["LOADING", "gave up retrying"]);
    said(RedisStore::connect(server.url()).await, NotApplied, &["LOADING"]);
    // With more time, the server becomes available.
    cycle(&store, "a").await.unwrap();
    loading.join().unwrap();
}

#[tokio::test]
async fn calls_wait_for_a_server_that_is_busy_with_a_script() {
    let server = Arc::new(RedisServer::builder().args(["--busy-reply-threshold", "5"]).start());
    let store = open_without_cache(&server).await;
    let script = thread::spawn({
        let server = server.clone();
        move || server.command(&["EVAL", "while true do end", "0"])
    });
    until("busy", async || says(&server, "BUSY")).await;
    said(impatient(&store, "a").await, NotApplied, &["BUSY", "gave up retrying"]);
    server.command(&["SCRIPT", "KILL"]);
    assert!(script.join().unwrap().is_error());
    cycle(&store, "a").await.unwrap();
}

#[tokio::test]
async fn a_server_that_cannot_save_rejects_writes_with_the_reason() {
    let server = RedisServer::builder().args(["--dbfilename", "taken"]).start();
    let store = open_without_cache(&server).await;
    let held = claim(&store, "a").await.unwrap();
    let folder = server.command(&["CONFIG", "GET", "dir"]).items()[1].text();
    // A snapshot cannot replace a directory.
    std::fs::create_dir(format!("{folder}/taken")).unwrap();
    server.command(&["CONFIG", "SET", "save", "900 1"]);
    server.command(&["BGSAVE"]);
    until("no snapshot", async || server.info("rdb_last_bgsave_status") == "err").await;
    said(store.claim(&ask("b", 7)).await, NotApplied, &["MISCONF", "its log"]);
    said(store.complete(&held, &done(None)).await, NotApplied, &["MISCONF"]);
    server.command(&["CONFIG", "SET", "save", ""]);
    assert_eq!(store.complete(&held, &done(None)).await.unwrap(), Settled::Done);
}

#[tokio::test]
async fn a_primary_without_enough_replicas_rejects_claims() {
    let (server, store) = start_without_cache().await;
    server.command(&["CONFIG", "SET", "min-replicas-to-write", "1"]);
    said(store.claim(&ask("a", 7)).await, NotApplied, &["NOREPLICAS", "min-replicas-to-write"]);
    server.command(&["CONFIG", "SET", "min-replicas-to-write", "0"]);
    cycle(&store, "a").await.unwrap();
}

#[tokio::test]
async fn unrelated_push_messages_have_no_effect() {
    let server = Arc::new(RedisServer::start());
    let store = RedisStore::connect(server.url()).await.unwrap();
    let noise = thread::spawn({
        let server = server.clone();
        move || {
            for number in 0..200 {
                for channel in ["idempotent:settled", "idempotent:forgotten"] {
                    server.command(&[b"PUBLISH", channel.as_bytes(), &vec![0xff; number]]);
                }
            }
        }
    });
    for number in 0..200 {
        cycle(&store, &number.to_string()).await.unwrap();
    }
    noise.join().unwrap();
}
