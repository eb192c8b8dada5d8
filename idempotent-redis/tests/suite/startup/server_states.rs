//! States in which a server rejects calls.
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use idempotent_core::StoreErrorKind::{Ambiguous, Corrupt, Foreign, NotApplied};
use idempotent_core::{Claim, Settled, Store, StoreError};
use idempotent_harness::servers::{RedisReplicas, RedisServer, Value};
use idempotent_redis::{RedisStore, RedisStoreBuilder};

use crate::startup::requests::{claim, completion, cycle, key, open, quick, request, said};

/// Claims with a short lease. The claim gives up after a third of the lease.
async fn impatient(store: &RedisStore, name: &str) -> Result<Claim, StoreError> {
    let mut request = request(name);
    request.lease = Duration::from_millis(150);
    store.claim(&request).await
}

/// Waits for an event instead of a time.
#[track_caller]
fn until(what: &str, mut happened: impl FnMut() -> bool) {
    let began = Instant::now();
    while !happened() {
        assert!(began.elapsed() < Duration::from_secs(60), "never happened: {what}");
        thread::sleep(Duration::from_millis(2));
    }
}

fn says(server: &RedisServer, code: &str) -> bool {
    server.try_command(&["GET", "x"]).is_ok_and(|said| said.text().starts_with(code))
}

#[tokio::test]
async fn a_replica_rejects_claims_with_a_remedy() {
    let group = RedisReplicas::start(1);
    let store = open(group.replica()).await;
    let parts = ["READONLY", "a replica", "redis+sentinel://"];
    said(impatient(&store, "a").await, NotApplied, &parts);
    // The replica has become the primary.
    group.replica().command(&["REPLICAOF", "NO", "ONE"]);
    cycle(&store, "a").await.unwrap();
}

#[tokio::test]
async fn full_memory_rejects_claims_and_lets_runs_complete() {
    for set in [|builder: RedisStoreBuilder| builder, RedisStoreBuilder::plain_scripts] {
        let server = RedisServer::start();
        let store = set(quick(server.url())).connect().await.unwrap();
        let held = claim(&store, "a").await.unwrap();
        server.command(&["CONFIG", "SET", "maxmemory", "1"]);
        said(store.claim(&request("b")).await, NotApplied, &["OOM", "new claims are rejected"]);
        assert_eq!(store.renew(&held, Duration::from_secs(60)).await.unwrap(), Settled::Done);
        assert_eq!(store.complete(&held, &completion()).await.unwrap(), Settled::Done);
        server.command(&["CONFIG", "SET", "maxmemory", "0"]);
        assert!(matches!(store.claim(&request("a")).await.unwrap(), Claim::Consumed(_)));
        cycle(&store, "b").await.unwrap();
    }
}

#[tokio::test]
async fn calls_wait_for_a_server_that_is_loading() {
    let slow = ["--key-load-delay", "5000", "--loading-process-events-interval-bytes", "1024"];
    let server = Arc::new(RedisServer::builder().args(slow).start());
    for number in 0..300 {
        server.command(&["SET", &format!("filler {number}"), &"x".repeat(1024)]);
    }
    let store = open(&server).await;
    server.command(&["SAVE"]);
    // DEBUG RELOAD is not an option: Redis 8.0 may then fail an assertion of its own when other clients send commands.
    let loading = thread::spawn({
        let server = server.clone();
        move || server.restart()
    });
    until("loading", || says(&server, "LOADING"));
    // The first call finds its connection gone and opens another.
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
    let store = open(&server).await;
    let script = thread::spawn({
        let server = server.clone();
        move || server.command(&["EVAL", "while true do end", "0"])
    });
    until("busy", || says(&server, "BUSY"));
    said(impatient(&store, "a").await, NotApplied, &["BUSY", "gave up retrying"]);
    server.command(&["SCRIPT", "KILL"]);
    assert!(script.join().unwrap().is_error());
    cycle(&store, "a").await.unwrap();
}

#[tokio::test]
async fn a_server_that_cannot_save_rejects_writes_with_the_reason() {
    let server = RedisServer::builder().args(["--dbfilename", "taken"]).start();
    let store = open(&server).await;
    let held = claim(&store, "a").await.unwrap();
    let folder = server.command(&["CONFIG", "GET", "dir"]).items()[1].text();
    // A snapshot cannot replace a directory.
    std::fs::create_dir(format!("{folder}/taken")).unwrap();
    server.command(&["CONFIG", "SET", "save", "900 1"]);
    server.command(&["BGSAVE"]);
    until("no snapshot", || server.info("rdb_last_bgsave_status") == "err");
    said(store.claim(&request("b")).await, NotApplied, &["MISCONF", "its log"]);
    said(store.complete(&held, &completion()).await, NotApplied, &["MISCONF"]);
    server.command(&["CONFIG", "SET", "save", ""]);
    assert_eq!(store.complete(&held, &completion()).await.unwrap(), Settled::Done);
}

#[tokio::test]
async fn a_primary_without_enough_replicas_rejects_claims() {
    let server = RedisServer::start();
    let store = open(&server).await;
    server.command(&["CONFIG", "SET", "min-replicas-to-write", "1"]);
    said(store.claim(&request("a")).await, NotApplied, &["NOREPLICAS", "min-replicas-to-write"]);
    server.command(&["CONFIG", "SET", "min-replicas-to-write", "0"]);
    cycle(&store, "a").await.unwrap();
}

#[tokio::test]
async fn values_of_other_programs_are_left_unchanged() {
    let server = RedisServer::start();
    let store = open(&server).await;
    let key = key("a");
    for plant in [&["RPUSH", key.as_str(), "x"][..], &["HSET", key.as_str(), "x", "y"], &["SET", key.as_str(), "x"]] {
        server.command(&["DEL", key.as_str()]);
        server.command(plant);
        let before = server.command(&["DUMP", key.as_str()]);
        let held = idempotent_core::ClaimHandle::unanswered(key.clone(), idempotent_core::OwnerToken(7));
        said(store.claim(&request("a")).await, Foreign, &["this library did not write"]);
        said(store.peek(&key).await, Foreign, &["this library did not write"]);
        said(store.complete(&held, &completion()).await, Foreign, &["this library did not write"]);
        assert_eq!(server.command(&["DUMP", key.as_str()]), before);
    }
}

#[tokio::test]
async fn flushed_scripts_are_resent_transparently() {
    let server = RedisServer::start();
    let store = open(&server).await;
    for number in 0..5 {
        server.command(&["SCRIPT", "FLUSH"]);
        let held = claim(&store, &number.to_string()).await.unwrap();
        server.command(&["SCRIPT", "FLUSH"]);
        assert_eq!(store.complete(&held, &completion()).await.unwrap(), Settled::Done);
    }
    // Many concurrent calls, which are batched.
    server.command(&["SCRIPT", "FLUSH"]);
    let tasks = (0..100).map(|number| {
        let store = store.clone();
        tokio::spawn(async move { cycle(&store, &format!("joined {number}")).await })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.unwrap().unwrap();
    }
}

/// No `HINCRBY` is involved: numbers are part of the record, and numbers out of range are rejected when read.
#[tokio::test]
async fn a_number_out_of_range_makes_a_record_unreadable() {
    let server = RedisServer::start();
    let store = open(&server).await;
    claim(&store, "a").await.unwrap();
    let key = key("a");
    let Value::Bytes(record) = server.command(&["GET", key.as_str()]) else { panic!("no record") };
    let end = record.len();
    for (number, attempt) in [(b"9999999999999999001", b"0000000"), (b"0000000000000001999", b"9999999")] {
        let mut full = record.clone();
        full[2..21].copy_from_slice(number);
        full[end - 7..].copy_from_slice(attempt);
        server.command(&[b"SET", key.as_str().as_bytes(), &full]);
        said(store.claim(&request("a")).await, Corrupt, &[]);
        said(store.peek(&key).await, Corrupt, &[]);
        assert_eq!(server.command(&["GET", key.as_str()]), Value::Bytes(full));
    }
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
