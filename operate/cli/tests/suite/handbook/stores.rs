//! Incidents of a store and its servers.
use idempotent_harness::servers::{PostgresServer, RedisServer};

use crate::handbook::incident::Incident;
use crate::support::{done, fill};

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
    incident.shows("idempotent doctor", &["new claims are rejected when memory is full"]);
    let counted = "idempotent count --state consuming,consumed,failed,dead,vacant";
    incident.shows(counted, &["\"consumed\":1", "\"dead\":1", "\"examined\":4"]);

    server.command(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]);
    server.command(&["SET", "other", "1"]);
    incident.ends("idempotent doctor", 3, &["`allkeys-lru`", "set `maxmemory-policy noeviction`"]);
}

/// A database with the tables of an older version.
pub(crate) async fn upgrade(incident: &mut Incident) {
    let server = PostgresServer::start();
    let statements = done("", &["migrate", "sql", "--dialect", "postgres"]);
    let first = statements.split("\n-- 2 ").next().unwrap();
    server.psql("postgres", first);
    incident.set("IDEMPOTENT_STORE", server.url());
    let status = "idempotent migrate status";
    incident.ends(status, 3, &["\"found\":1", "\"pending\":[2,"]);
    incident.changes("idempotent migrate up", &["done: table `idempotent_record` has version"]);
    incident.shows(status, &["\"pending\":[]"]);
}
