//! Checks of a server before it is used for records.
use idempotent_core::StoreErrorKind::{NotApplied, Schema};
use idempotent_core::store::{Health, Severity};
use idempotent_harness::servers::{RedisReplicas, RedisServer};
use idempotent_redis::RedisStore;

use crate::startup::{cycle, find, quick, said};
use crate::support::{open_without_cache, start_without_cache};

#[tokio::test]
async fn an_evicting_server_is_refused_unless_eviction_is_allowed() {
    let server = RedisServer::builder().args(["--maxmemory", "100mb", "--maxmemory-policy", "volatile-ttl"]).start();
    let refused = RedisStore::connect(server.url()).await;
    said(refused, Schema, &["`volatile-ttl`", "noeviction", "allow_eviction", &server.address()]);
    let store = quick(server.url()).allow_eviction(true).connect().await.unwrap();
    assert_eq!(find(&store.check().await.unwrap(), "eviction").severity(), Severity::Warn);
    cycle(&store, "a").await.unwrap();

    assert_eq!(store.evicted_keys().await.unwrap(), 0);
    server.command(&["SETEX", "other", "100", "x"]);
    server.command(&["CONFIG", "SET", "maxmemory", "1"]);
    // The server evicts keys before a command that needs memory.
    server.command(&["SET", "x", "y"]);
    assert!(store.evicted_keys().await.unwrap() >= 1);
    server.command(&["CONFIG", "SET", "maxmemory", "0"]);

    server.command(&["CONFIG", "SET", "maxmemory", "100mb"]);
    server.command(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]);
    let checkup = open_without_cache(&server).await.check().await.unwrap();
    let evicted = server.info("evicted_keys");
    assert_eq!(find(&checkup, "eviction").severity(), Severity::Warn);
    assert!(find(&checkup, "eviction").text().contains(&format!("; {evicted} keys were evicted")), "{checkup}");
    server.command(&["CONFIG", "RESETSTAT"]);
    assert_eq!(find(&open_without_cache(&server).await.check().await.unwrap(), "eviction").severity(), Severity::Ok);
}

#[tokio::test]
async fn the_keys_and_the_memory_of_a_server_are_read() {
    let (server, store) = start_without_cache().await;
    cycle(&store, "a").await.unwrap();
    let memory = store.memory().await.unwrap();
    assert_eq!(memory.keys, 2, "the record and the epoch");
    assert!(memory.used_bytes > 500_000 && memory.resident_bytes > 500_000, "{memory:?}");
    server.kill();
    // The client may not have noticed yet that its connection is closed.
    assert!(store.memory().await.is_err());
}

#[tokio::test]
async fn each_setting_of_a_server_has_its_finding() {
    let (server, store) = start_without_cache().await;
    assert_eq!(store.check().await.unwrap().severity(), Severity::Warn, "no persistence");
    for (setting, value, subject, severity, text) in [
        // A policy without a limit evicts nothing.
        ("maxmemory-policy", "allkeys-lru", "eviction", Severity::Ok, "maxmemory is 0"),
        ("maxmemory-policy", "noeviction", "eviction", Severity::Ok, "maxmemory is 0"),
        ("maxmemory", "1", "eviction", Severity::Warn, "the memory is full now"),
        ("maxmemory", "1gb", "eviction", Severity::Ok, "noeviction"),
        ("maxmemory", "0", "persistence", Severity::Warn, "no persistence"),
        ("save", "60 1", "persistence", Severity::Ok, "snapshots"),
        ("save", "", "persistence", Severity::Warn, "no persistence"),
        ("appendonly", "yes", "persistence", Severity::Ok, "an append-only file"),
    ] {
        server.command(&["CONFIG", "SET", setting, value]);
        let checkup = open_without_cache(&server).await.check().await.unwrap();
        let finding = find(&checkup, subject);
        assert_eq!(finding.severity(), severity, "{setting} {value}: {checkup}");
        assert!(finding.text().contains(text), "{setting} {value}: {checkup}");
    }
    assert_eq!(open_without_cache(&server).await.check().await.unwrap().severity(), Severity::Ok);
}

#[tokio::test]
async fn the_report_contains_the_server_version() {
    let server = RedisServer::start();
    let checkup = open_without_cache(&server).await.check().await.unwrap();
    let version = server.version();
    let (flavour, number) = version.split_once(' ').unwrap();
    let text = find(&checkup, "version").text();
    assert!(text.to_lowercase().starts_with(flavour) && text.contains(number), "{text} is not {version}");
    assert_eq!(find(&checkup, "version").severity(), Severity::Ok);
    assert!(checkup.to_string().contains(&format!("{}: {text}", server.address())), "{checkup}");
}

#[tokio::test]
async fn unused_replicas_cause_a_warning() {
    let group = RedisReplicas::start(1);
    let store = open_without_cache(group.primary()).await;
    let checkup = store.check().await.unwrap();
    assert!(
        find(&checkup, "replication").text().starts_with("1 replicas, and min-replicas-to-write is 0"),
        "{checkup}"
    );
    group.primary().command(&["CONFIG", "SET", "min-replicas-to-write", "1"]);
    assert_eq!(find(&store.check().await.unwrap(), "replication").severity(), Severity::Ok);
}

#[tokio::test]
async fn a_distant_server_clock_only_causes_a_warning() {
    let server = RedisServer::builder().faketime().start();
    let store = open_without_cache(&server).await;
    assert_eq!(find(&store.check().await.unwrap(), "clock").severity(), Severity::Ok);
    for seconds in [-3600.0, 3600.0] {
        server.shift_clock(seconds);
        let checkup = store.check().await.unwrap();
        assert_eq!(find(&checkup, "clock").severity(), Severity::Warn);
        assert!(find(&checkup, "clock").text().contains("minutes"), "{checkup}");
        cycle(&store, &seconds.to_string()).await.unwrap();
    }
}

#[tokio::test]
async fn workers_of_another_protocol_do_not_share_a_namespace() {
    let (server, store) = start_without_cache().await;
    assert_eq!(server.command(&["GET", "idempotent:epoch"]).text(), "1");
    assert_eq!(server.command(&["TTL", "idempotent:epoch"]).integer(), Some(-1));
    server.command(&["SET", "idempotent:epoch", "2"]);
    said(RedisStore::connect(server.url()).await, Schema, &["is 2", "protocol 1", "`idempotent:epoch`"]);
    let checkup = store.check().await.unwrap();
    assert_eq!(find(&checkup, "epoch").severity(), Severity::Refuse);
    // Another namespace is unaffected.
    quick(server.url()).namespace("other").connect().await.unwrap();
    server.command(&["SET", "idempotent:epoch", "soon"]);
    said(RedisStore::connect(server.url()).await, Schema, &["not written by this library"]);
    server.command(&["DEL", "idempotent:epoch"]);
    server.command(&["LPUSH", "idempotent:epoch", "1"]);
    said(RedisStore::connect(server.url()).await, Schema, &["not written by this library"]);
}

#[tokio::test]
async fn an_epoch_that_cannot_be_written_is_a_warning() {
    let server = RedisServer::builder().args(["--maxmemory", "1"]).start();
    let checkup = open_without_cache(&server).await.check().await.unwrap();
    assert_eq!(find(&checkup, "epoch").severity(), Severity::Warn);
    assert!(find(&checkup, "epoch").text().contains("is missing"), "{checkup}");
    let group = RedisReplicas::start(1);
    let checkup = open_without_cache(group.replica()).await.check().await.unwrap();
    assert_eq!(find(&checkup, "epoch").severity(), Severity::Warn);
    assert!(find(&checkup, "replication").text().contains("this is a replica"), "{checkup}");
}

#[tokio::test]
async fn checking_writes_nothing_and_reports_a_missing_epoch() {
    let (server, store) = start_without_cache().await;
    server.command(&["DEL", "idempotent:epoch"]);
    let checkup = store.check().await.unwrap();
    assert_eq!(find(&checkup, "epoch").severity(), Severity::Warn);
    assert!(find(&checkup, "epoch").text().contains("`idempotent:epoch` is missing"), "{checkup}");
    assert_eq!(server.command(&["DBSIZE"]).integer(), Some(0));
    server.kill();
    assert!(store.check().await.unwrap_err().is_worth_a_retry());
    said(store.evicted_keys().await, NotApplied, &["refused"]);
}
