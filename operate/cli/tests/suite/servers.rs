//! The commands on real servers.
use idempotent_harness::servers::{PostgresServer, RedisServer};

use crate::support::{done, fill, key, run};

/// Runs the commands that matter in an incident.
async fn inspected_and_repaired(url: &str) {
    let listed = done(url, &["list", "--all", "-o", "key"]);
    let mut keys: Vec<_> = listed.lines().collect();
    keys.sort_unstable();
    let mut expected = ["held", "lost", "poison"].map(key);
    expected.sort();
    assert_eq!(keys, expected);
    assert!(done(url, &["inspect", &key("held"), "-o", "table"]).contains("lease      ends in 9m"));
    for (command, order) in [("forget", "poison"), ("release", "held")] {
        done(url, &[command, &key(order), "--yes", "--reason", "corrected"]);
        assert!(done(url, &["inspect", &key(order)]).contains("\"state\":\"vacant\""));
    }
}

#[tokio::test]
async fn redis_records_are_inspected_and_repaired() {
    let server = RedisServer::start();
    fill(&idempotent::connect(server.url()).await.unwrap()).await;
    inspected_and_repaired(&server.url()).await;
    server.kill();
    let ran = run(&server.url(), &["list"]);
    assert!(ran.code == 7 && ran.err.contains("Connection refused"), "{ran:?}");
}

#[tokio::test]
async fn postgres_records_are_inspected_and_repaired_and_a_missing_table_is_named() {
    let server = PostgresServer::start();
    let url = server.url();
    let ran = run(&url, &["list"]);
    assert!(ran.code == 5 && ran.err.contains("`idempotent_record` is missing"), "{ran:?}");
    fill(&idempotent::connect(&url).create(true).await.unwrap()).await;
    inspected_and_repaired(&url).await;
    server.psql("postgres", "CREATE SCHEMA shop");
    let other = idempotent::connect(&url).create(true).schema("shop").table("orders_record").await.unwrap();
    fill(&other).await;
    let names = ["--schema", "shop", "--table", "orders_record"];
    assert_eq!(done(&url, &[&["list"][..], &names].concat()).lines().count(), 3);
    let counts: serde_json::Value = serde_json::from_str(&done(&url, &[&["count"][..], &names].concat())).unwrap();
    assert_eq!(counts["examined"], 4);
}
