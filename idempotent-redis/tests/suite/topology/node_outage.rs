//! A consumer on a cluster of which one node stops.
use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;

use idempotent_core::{Executor, Identity, Key, Scene, Store, StoreErrorKind, StoreNode};
use idempotent_harness::servers::RedisCluster;
use idempotent_mq::{Consumer, KeyFrom, MemoryQueue, Message, Messages};
use idempotent_redis::RedisStore;
use tokio::sync::{mpsc, oneshot};

use crate::topology::{PATIENCE, ask, blocking, claim, granted, key, without_cache};

/// The index of the node that stops.
const STOPPED: usize = 2;

fn key_of(order: u64) -> Key {
    Identity::new(Scene::Mq, "billing", &order.to_string()).key("idempotent").unwrap()
}

fn node_of(store: &RedisStore, key: &Key) -> StoreNode {
    store.capabilities().nodes.unwrap().node_of(key).unwrap()
}

/// Receives handled orders until all of `expected` were handled.
async fn handled(orders: &mut mpsc::UnboundedReceiver<u64>, mut expected: HashSet<u64>) -> Vec<u64> {
    let mut all = Vec::new();
    while !expected.is_empty() {
        let order = tokio::time::timeout(PATIENCE, orders.recv()).await.expect("an order is handled").unwrap();
        expected.remove(&order);
        all.push(order);
    }
    all
}

fn send(queue: &MemoryQueue, orders: Range<u64>) -> HashSet<u64> {
    orders.clone().for_each(|order| queue.send(order.to_string()));
    orders.collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deliveries_of_the_other_nodes_are_handled_while_a_node_is_stopped() {
    let cluster = Arc::new(RedisCluster::start(3));
    let store = without_cache(cluster.url()).await;
    assert_eq!(store.capabilities().nodes.unwrap().node_count(), 3);
    let stopped = StoreNode::new(cluster.node(STOPPED).address());
    let (queue, executor) = (MemoryQueue::new("orders"), Executor::new(store.clone()));
    let (sender, mut orders) = mpsc::unbounded_channel();
    let charge = move |message: Message<u64>| {
        let sender = sender.clone();
        async move { sender.send(message.body).map_err(|_| "the test has ended") }
    };
    let handling = Messages::json().keyed(KeyFrom::body("order", |order: &u64| order.to_string())).run(charge);
    let consumer = Consumer::builder(queue.source(), "billing", &executor).concurrency(16).build(handling).unwrap();
    let counters = consumer.counters();
    let (stop, end) = oneshot::channel::<()>();
    let consuming = tokio::spawn(consumer.run(async { drop(end.await) }));

    // The connections are open before the node stops.
    let first = send(&queue, 0..60);
    handled(&mut orders, first).await;
    tokio::time::timeout(PATIENCE, queue.drained()).await.unwrap();

    let pausing = cluster.clone();
    blocking(move || pausing.node(STOPPED).pause()).await;
    let mut all = Vec::new();
    let mut failed = HashSet::new();
    // Several rounds, so that deliveries also arrive after the failure is known.
    for round in 1..=5 {
        let sent = send(&queue, round * 1_000..round * 1_000 + 300);
        let is_failed = |order: &u64| node_of(&store, &key_of(*order)) == stopped;
        let (lost, healthy): (HashSet<u64>, HashSet<u64>) = sent.into_iter().partition(is_failed);
        assert!(lost.len() > 50 && healthy.len() > 100, "{} and {}", lost.len(), healthy.len());
        failed.extend(lost);
        all.extend(handled(&mut orders, healthy).await);
    }
    assert!(all.iter().all(|order| !failed.contains(order)), "an order of the stopped node was handled");
    let (counts, gauges) = (counters.counts(), counters.gauges());
    // A loaded machine may also delay the answers of another node.
    assert!(counts.node_outages >= 1 && gauges.failed_nodes >= 1, "{counts:?}");
    assert!(counts.deferred > 0, "{counts:?}");

    let resuming = cluster.clone();
    blocking(move || resuming.node(STOPPED).resume()).await;
    handled(&mut orders, failed).await;
    tokio::time::timeout(PATIENCE, queue.drained()).await.unwrap();
    stop.send(()).unwrap();
    let counts = consuming.await.unwrap().unwrap();
    assert_eq!((counts.dead_lettered, counts.unsettled), (0, 0), "{counts:?}");
}

#[tokio::test]
async fn an_error_names_the_node_that_failed() {
    let cluster = Arc::new(RedisCluster::start(3));
    let store = without_cache(cluster.url()).await;
    let stopped = StoreNode::new(cluster.node(STOPPED).address());
    let requests: Vec<_> = (0..).map(|number| ask(key("k", number), 1)).take(60).collect();
    let (lost, healthy): (Vec<_>, Vec<_>) =
        requests.into_iter().partition(|request| node_of(&store, &request.key) == stopped);
    cluster.node(STOPPED).kill();
    let request = idempotent_core::ClaimRequest { lease: std::time::Duration::from_secs(1), ..lost[0].clone() };
    let error = store.claim(&request).await.unwrap_err();
    assert!(matches!(error.kind(), StoreErrorKind::NotApplied | StoreErrorKind::Ambiguous), "{error}");
    assert_eq!(error.node(), Some(&stopped), "{error}");
    granted(claim(&store, &healthy[0]).await);
}
