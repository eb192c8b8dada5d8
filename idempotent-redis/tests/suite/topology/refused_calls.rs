//! Servers that reject calls.
use std::time::Duration;

use idempotent_core::{ClaimRequest, Store, StoreErrorKind};
use idempotent_harness::servers::{RedisCluster, RedisServer};
use idempotent_redis::RedisStore;

use crate::support::fake_server::Fake;
use crate::topology::{ask, granted, key, until, without_cache};

/// Returns a claim that is retried for half a second.
fn hasty(number: u128) -> ClaimRequest {
    ClaimRequest { lease: Duration::from_secs(2), ..ask(key("a", number), 1) }
}

#[tokio::test]
async fn a_cluster_rejects_claims_while_it_is_down_and_accepts_them_afterwards() {
    let cluster = RedisCluster::start(3);
    let store = without_cache(cluster.url()).await;
    for node in cluster.nodes() {
        node.command(&["CONFIG", "SET", "cluster-require-full-coverage", "yes"]);
    }
    cluster.node(2).kill();
    let up = cluster.node(0);
    until("the cluster is down", async || up.command(&["CLUSTER", "INFO"]).text().contains("state:fail")).await;
    for number in 0..8 {
        let error = store.claim(&hasty(number)).await.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::NotApplied, "{error}");
    }
    cluster.node(2).restart();
    until("it is up again", async || {
        cluster.nodes().iter().all(|node| node.command(&["CLUSTER", "INFO"]).text().contains("state:ok"))
    })
    .await;
    for number in 0..8 {
        granted(store.claim(&ask(key("a", number), 1)).await);
    }
}

#[tokio::test]
async fn a_redirection_loop_ends_after_sixteen_hops() {
    let fake = Fake::answering(|port| format!("-MOVED 1 127.0.0.1:{port}\r\n")).await;
    let store = without_cache(format!("redis+cluster://{}", fake.address())).await;
    let before = fake.scripts();
    let error = store.claim(&ask(key("a", 1), 1)).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::NotApplied);
    assert!(error.to_string().contains("topology is not settling"), "{error}");
    assert_eq!(fake.scripts() - before, 17);
}

#[tokio::test]
async fn a_script_with_keys_in_two_slots_is_a_typed_error_and_is_not_repeated() {
    let reply = "-CROSSSLOT Keys in request don't hash to the same slot\r\n";
    let fake = Fake::answering(|_| reply.to_owned()).await;
    for scheme in ["redis", "redis+cluster"] {
        let store = without_cache(format!("{scheme}://{}", fake.address())).await;
        let before = fake.scripts();
        let error = store.claim(&ask(key("a", 1), 1)).await.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Schema, "{scheme}: {error}");
        for part in ["CROSSSLOT Keys in request", "a bug in idempotent-redis", "different slots"] {
            assert!(error.to_string().contains(part), "{scheme}: {part:?} is not in: {error}");
        }
        assert_eq!(fake.scripts() - before, 1, "{scheme}: a retry cannot help");
    }
}

#[tokio::test]
async fn a_cluster_node_is_not_used_as_a_single_server_and_vice_versa() {
    let server = RedisServer::start();
    let error = RedisStore::connect(format!("redis+cluster://{}", server.address())).await.unwrap_err();
    assert!(error.to_string().contains("use redis://"), "{error}");
    let fake = Fake::answering(|_| "-MOVED 1 127.0.0.1:1\r\n".to_owned()).await;
    let error =
        without_cache(format!("redis://{}", fake.address())).await.claim(&ask(key("a", 1), 1)).await.unwrap_err();
    assert!(error.to_string().contains("redis+cluster://"), "{error}");
}

#[tokio::test]
async fn an_unreachable_server_means_not_applied_in_every_topology() {
    let server = RedisServer::start();
    let address = server.address();
    server.kill();
    for url in
        [format!("redis://{address}"), format!("redis+sentinel://{address}/main"), format!("redis+cluster://{address}")]
    {
        let error = RedisStore::connect(&url).await.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::NotApplied, "{url}: {error}");
    }
}
