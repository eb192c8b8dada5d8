//! What a server says when it cannot, now.
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use idempotent_core::StoreErrorKind::{Ambiguous, Corrupt, Foreign, NotApplied};
use idempotent_core::{Claim, Settled, Store, StoreError};
use idempotent_redis::{RedisStore, RedisStoreBuilder};
use idempotent_testkit::servers::{RedisReplicas, RedisServer, Value};

use crate::startup::requests::{claim, completion, cycle, key, open, quick, request, said};

/// Gives up soon: the patience of a claim is a third of its lease.
async fn impatient(store: &RedisStore, name: &str) -> Result<Claim, StoreError> {
    let mut request = request(name);
    request.lease = Duration::from_millis(150);
    store.claim(&request).await
}

/// Waits for an event, not for a time.
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
async fn n63_a_replica_takes_no_claim_and_says_what_to_do() {
    let group = RedisReplicas::start(1);
    let store = open(group.replica()).await;
    let parts = ["READONLY", "a replica", "redis+sentinel://"];
    said(impatient(&store, "a").await, NotApplied, &parts);
    // It became the primary meanwhile.
    group.replica().command(&["REPLICAOF", "NO", "ONE"]);
    cycle(&store, "a").await.unwrap();
}

#[tokio::test]
async fn n64_a_full_memory_refuses_claims_and_stores_what_runs() {
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
async fn n65_a_server_that_loads_is_waited_for_a_while() {
    let slow = ["--key-load-delay", "5000", "--loading-process-events-interval-bytes", "1024"];
    let server = Arc::new(RedisServer::builder().args(slow).start());
    for number in 0..300 {
        server.command(&["SET", &format!("filler {number}"), &"x".repeat(1024)]);
    }
    let store = open(&server).await;
    server.command(&["SAVE"]);
    // Not DEBUG RELOAD: Redis 8.0 can fail an assertion of its own after one that clients have asked it things in.
    let loading = thread::spawn({
        let server = server.clone();
        move || server.restart()
    });
    until("loading", || says(&server, "LOADING"));
    // It finds its connection gone, and makes another.
    said(impatient(&store, "a").await, Ambiguous, &[]);
    said(impatient(&store, "a").await, NotApplied, &["LOADING", "gave up retrying"]);
    said(RedisStore::connect(server.url()).await, NotApplied, &["LOADING"]);
    // With more patience it is there in the end.
    cycle(&store, "a").await.unwrap();
    loading.join().unwrap();
}

#[tokio::test]
async fn n66_a_server_busy_with_somebodys_script_is_waited_for_a_while() {
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
async fn n67_a_server_that_cannot_save_refuses_and_says_why() {
    let server = RedisServer::builder().args(["--dbfilename", "taken"]).start();
    let store = open(&server).await;
    let held = claim(&store, "a").await.unwrap();
    let folder = server.command(&["CONFIG", "GET", "dir"]).items()[1].text();
    // A snapshot cannot take a folder's place.
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
async fn n68_a_primary_that_misses_its_replicas_refuses() {
    let server = RedisServer::start();
    let store = open(&server).await;
    server.command(&["CONFIG", "SET", "min-replicas-to-write", "1"]);
    said(store.claim(&request("a")).await, NotApplied, &["NOREPLICAS", "min-replicas-to-write"]);
    server.command(&["CONFIG", "SET", "min-replicas-to-write", "0"]);
    cycle(&store, "a").await.unwrap();
}

#[tokio::test]
async fn n72_what_is_not_ours_is_left_as_it_is() {
    let server = RedisServer::start();
    let store = open(&server).await;
    let key = key("a");
    for plant in [&["RPUSH", key.as_str(), "x"][..], &["HSET", key.as_str(), "x", "y"], &["SET", key.as_str(), "x"]] {
        server.command(&["DEL", key.as_str()]);
        server.command(plant);
        let before = server.command(&["DUMP", key.as_str()]);
        let held = idempotent_core::Held::unanswered(key.clone(), idempotent_core::OwnerToken(7));
        said(store.claim(&request("a")).await, Foreign, &["not ours"]);
        said(store.peek(&key).await, Foreign, &["not ours"]);
        said(store.complete(&held, &completion()).await, Foreign, &["not ours"]);
        assert_eq!(server.command(&["DUMP", key.as_str()]), before);
    }
}

#[tokio::test]
async fn n73_scripts_that_the_server_forgot_are_sent_again_unseen() {
    let server = RedisServer::start();
    let store = open(&server).await;
    for number in 0..5 {
        server.command(&["SCRIPT", "FLUSH"]);
        let held = claim(&store, &number.to_string()).await.unwrap();
        server.command(&["SCRIPT", "FLUSH"]);
        assert_eq!(store.complete(&held, &completion()).await.unwrap(), Settled::Done);
    }
    // Many at once, whose calls are joined.
    server.command(&["SCRIPT", "FLUSH"]);
    let tasks = (0..100).map(|number| {
        let store = store.clone();
        tokio::spawn(async move { cycle(&store, &format!("joined {number}")).await })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.unwrap().unwrap();
    }
}

/// There is no `HINCRBY` here: numbers are kept in the record, and what could run over is refused as it is read.
#[tokio::test]
async fn n76_a_number_at_its_end_is_a_record_that_cannot_be_read() {
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
async fn n77_what_is_pushed_unasked_disturbs_nothing() {
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
