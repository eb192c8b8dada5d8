//! A Prometheus that scrapes a consumer.
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use idempotent_core::{Executor, MemoryStore, Policy, Scene};
use idempotent_harness::servers::PrometheusServer;
use idempotent_metrics::ALERT_RULES;
use idempotent_mq::{Consumer, KeyFrom, MemoryQueue, Message, Messages};
use tokio::net::TcpListener;

use crate::world::World;

async fn charge(order: Message<u64>) -> Result<(), &'static str> {
    if order.body == 0 { Err("no such order") } else { Ok(()) }
}

/// Serves the metrics of the world, and returns the address.
async fn serve(world: &World) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, handle) = (listener.local_addr().unwrap(), world.handle.clone());
    let router = Router::new().route("/metrics", get(move || async move { handle.render() }));
    tokio::spawn(async move { axum::serve(listener, router).await });
    address.to_string()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn prometheus_scrapes_a_consumer_and_fires_the_alert_about_its_dead_key() {
    let world = World::new();
    let policy = Policy::new().max_retries(1).retry_delay(Duration::from_millis(1));
    let executor = Executor::builder(MemoryStore::new()).policy(Scene::Mq, policy).observer(world.observer()).build();
    let (executor, queue) = (executor.unwrap(), MemoryQueue::new("orders"));
    let handling = Messages::json().keyed(KeyFrom::body("order", |order: &u64| order.to_string())).run(charge);
    let consumer = Consumer::builder(queue.source(), "billing", &executor).observer(world.observer());
    let consumer = consumer.build(handling).unwrap();
    let collector = world.collector().consumer("billing", consumer.counters()).executor("orders", &executor);
    let collecting = tokio::spawn(
        collector.clock(Arc::new(idempotent_core::SystemClock::new())).run(Duration::from_millis(100), pending()),
    );
    let consuming = tokio::spawn(consumer.run(pending()));
    let address = serve(&world).await;
    let prometheus = tokio::task::spawn_blocking(move || PrometheusServer::start(&address, ALERT_RULES)).await.unwrap();
    ["17", "17", "18", "0"].iter().for_each(|body| queue.send(*body));
    let asked = tokio::task::spawn_blocking(move || {
        let _ = prometheus.wait_for("idempotent_consumer_deliveries_total{group=\"billing\",end=\"acked\"} == 3");
        let _ = prometheus.wait_for("sum(idempotent_deliveries_total{outcome=~\"ran|replayed\"}) == 3");
        let _ = prometheus.wait_for("idempotent_consumer_capacity{group=\"billing\"} == 8");
        let _ = prometheus
            .wait_for("idempotent_store_operation_duration_seconds_bucket{operation=\"claim\",le=\"+Inf\"} >= 5");
        let _ = prometheus.wait_for("idempotent_consumer_delivery_age_seconds_count == 4");
        let alert = prometheus.wait_for("ALERTS{alertname=\"IdempotentDeadKeys\",alertstate=\"firing\"}");
        assert_eq!((&alert["metric"]["scope"], &alert["metric"]["job"]), (&"billing".into(), &"test".into()));
        assert!(prometheus.query("ALERTS{alertname=\"IdempotentStoreDown\"}").is_empty());
    });
    asked.await.unwrap();
    let metrics =
        PrometheusServer::promtool(std::env::temp_dir().as_path(), &["check", "metrics"], &world.handle.render());
    assert_eq!(metrics, Ok(String::new()), "promtool has something to say about the metrics");
    consuming.abort();
    collecting.abort();
}
