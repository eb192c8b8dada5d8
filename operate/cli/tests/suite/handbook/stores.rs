//! Incidents of a store and its servers.
use idempotent::{Executor, Outcome};
use idempotent_harness::servers::{PostgresServer, RedisReplicas, RedisServer};

use crate::handbook::flows::stalled_outbox;
use crate::handbook::incident::Incident;
use crate::handbook::keys::{claim, run};
use crate::sqlite::file;
use crate::support::{done, fill, key};

/// A database without tables, and later one whose records nothing removes.
pub(crate) async fn before_production(incident: &mut Incident) {
    let server = PostgresServer::start_durable();
    incident.set("IDEMPOTENT_STORE", server.url());
    let check = "idempotent doctor --fail-on warn";
    incident.ends(check, 3, &["run `idempotent migrate up`"]);
    incident.changes("idempotent migrate up", &["done: table `idempotent_record` has version"]);
    incident.shows(check, &["\"check\":\"orphans\""]);
    fill(&idempotent::connect(server.url()).await.unwrap()).await;
    server.psql("postgres", "UPDATE idempotent_record SET expires_at = 1 WHERE state = 2");
    incident.ends(check, 3, &["nothing removes expired records"]);
    incident.shows("idempotent purge", &["\"done\":true", "\"removed\":1"]);
    incident.shows(check, &["no record expired more than a day ago"]);
}

/// The server of a store is down.
pub(crate) async fn down(incident: &mut Incident) {
    let server = RedisServer::start();
    incident.set("IDEMPOTENT_STORE", server.url());
    incident.shows("idempotent doctor", &["\"check\":\"version\""]);
    server.kill();
    incident.ends("idempotent doctor", 7, &["Connection refused"]);
    server.restart();
    incident.shows("idempotent doctor", &["\"check\":\"version\""]);
}

/// A server whose memory is full, and which is then set to evict keys.
pub(crate) async fn full(incident: &mut Incident) {
    let server = RedisServer::start();
    let store = idempotent::connect(server.url()).await.unwrap();
    fill(&store).await;
    incident.set("IDEMPOTENT_STORE", server.url());
    server.command(&["CONFIG", "SET", "maxmemory", "1"]);
    let refused = server.command(&["SET", "other", "1"]).text();
    assert!(refused.starts_with("OOM"), "{refused}");
    incident.shows("idempotent doctor", &["new claims are rejected when memory is full", "the memory is full now"]);
    let counted = "idempotent count --state consuming,consumed,failed,dead,vacant";
    incident.shows(counted, &["\"consumed\":1", "\"dead\":1", "\"examined\":4"]);

    server.command(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]);
    server.command(&["SET", "other", "1"]);
    let evicted = format!("; {} keys were evicted", server.info("evicted_keys"));
    assert_ne!(evicted, "; 0 keys were evicted");
    incident.ends("idempotent doctor", 3, &["`allkeys-lru`", "set `maxmemory-policy noeviction`", &evicted]);
    server.command(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]);
    incident.shows("idempotent doctor", &["new claims are rejected when memory is full", &evicted]);
}

/// A database with the tables of an older version.
pub(crate) async fn upgrade(incident: &mut Incident) {
    let server = PostgresServer::start_durable();
    let statements = done("", &["migrate", "sql", "--dialect", "postgres"]);
    let first = statements.split("\n-- 2 ").next().unwrap();
    server.psql("postgres", first);
    incident.set("IDEMPOTENT_STORE", server.url());
    let status = "idempotent migrate status";
    incident.ends(status, 3, &["\"found\":1", "\"pending\":[2,"]);
    incident.changes("idempotent migrate up", &["done: table `idempotent_record` has version"]);
    incident.shows(status, &["\"pending\":[]"]);
    incident.shows("idempotent doctor", &["\"check\":\"schema\"", "\"check\":\"orphans\""]);
}

/// A primary whose replica may lack its last writes.
pub(crate) async fn failover(incident: &mut Incident) {
    let group = RedisReplicas::start(1);
    fill(&idempotent::connect(group.primary().url()).await.unwrap()).await;
    incident.set("IDEMPOTENT_STORE", group.primary().url());
    incident.shows("idempotent doctor", &["writes not yet replicated are lost"]);
    incident.shows("idempotent list --orphaned", &[]);
    group.primary().command(&["CONFIG", "SET", "min-replicas-to-write", "1"]);
    incident.shows("idempotent doctor", &["min-replicas-to-write is set"]);
    incident.set("IDEMPOTENT_STORE", group.replica().url());
    incident.shows("idempotent doctor", &["this is a replica and rejects writes"]);
}

/// A server whose clock jumps ten minutes ahead while a worker holds a key.
pub(crate) async fn clock(incident: &mut Incident) {
    let server = RedisServer::builder().faketime().start();
    claim(&idempotent::connect(server.url()).await.unwrap(), "held").await;
    incident.set("IDEMPOTENT_STORE", server.url());
    incident.shows("idempotent doctor", &["agrees with the local clock"]);
    assert_eq!(incident.shows("idempotent list --orphaned", &[]), "");
    // The check compares whole seconds and prints whole minutes.
    server.shift_clock(630.0);
    incident.shows("idempotent doctor", &["differs by 10 minutes from the local clock"]);
    incident.shows("idempotent list --orphaned", &[&key("held")]);
}

/// Records and an outbox that are restored from a copy, which lacks the newest record.
pub(crate) async fn restored(incident: &mut Incident) {
    let (_outbox, outbox) = stalled_outbox().await;
    let (folder, url) = file().await;
    let (records, copy) = (folder.path().join("records.db"), folder.path().join("copy.db"));
    std::fs::copy(&records, &copy).unwrap();
    let executor = Executor::new(idempotent::connect(&url).await.unwrap());
    assert_eq!(run(&executor, 500, "4711").await, Some(Outcome::Ran));
    incident.set("IDEMPOTENT_STORE", &url);
    incident.set("IDEMPOTENT_OUTBOX", outbox);
    let inspect = "idempotent inspect --scope orders --part 4711";
    incident.shows(inspect, &["\"state\":\"consumed\""]);

    incident.set("IDEMPOTENT_STORE", format!("sqlite:{}", copy.display()));
    incident.shows("idempotent migrate status", &["\"pending\":[]"]);
    incident.shows("idempotent doctor", &["\"check\":\"schema\""]);
    incident.ends(inspect, 4, &["has expired"]);
    incident.value("4711", "paid");
    incident.shows(inspect, &["\"state\":\"consumed\""]);
    incident.shows("idempotent outbox status", &["\"unsent\":{\"at_least\":"]);

    let server = RedisServer::start();
    fill(&idempotent::connect(server.url()).await.unwrap()).await;
    server.command(&["FLUSHALL"]);
    incident.set("IDEMPOTENT_STORE", server.url());
    incident.shows("idempotent doctor", &["`idempotent:epoch` is missing", "the server has lost its keys"]);
}
