//! Redis stores and delay queues.
use std::time::Duration;

use idempotent_harness::servers::RedisServer;
use idempotent_redis::{DelayMessage, DelayQueue, RedisStore};

use crate::world::World;

#[tokio::test]
async fn a_redis_store_and_a_delay_queue_are_read() {
    let world = World::new();
    let server = RedisServer::start();
    let store = RedisStore::connect(server.url()).await.unwrap();
    let queue = DelayQueue::connect(server.url(), "orders").await.unwrap();
    queue.send(&DelayMessage::after(Duration::ZERO, b"planted".to_vec())).await.unwrap();
    let mut collector = world.collector().redis("orders", &store).delay_queue("reminders", &queue);
    collector.collect().await;
    assert_eq!(world.value("idempotent_store_evicted_keys", &["store=\"orders\""]), Some(0.0));
    assert_eq!(world.value("idempotent_store_not_replicated_total", &["operation=\"claim\""]), Some(0.0));
    assert_eq!(world.value("idempotent_store_redirections_total", &["store=\"orders\""]), Some(0.0));
    assert_eq!(world.value("idempotent_store_cache_hits_total", &["store=\"orders\""]), Some(0.0));
    let sizes = ["ready", "waiting", "in_flight", "dead"]
        .map(|state| world.value("idempotent_delay_messages", &["queue=\"reminders\"", &format!("state=\"{state}\"")]));
    assert_eq!(sizes, [Some(1.0), Some(0.0), Some(0.0), Some(0.0)]);
    assert!(format!("{collector:?}").contains(r#"["redis:orders", "delay:reminders"]"#), "{collector:?}");
    drop(server);
    collector.collect().await;
    assert!(world.value("idempotent_store_evicted_keys", &["store=\"orders\""]).unwrap().is_nan());
    for source in ["redis:orders", "delay:reminders"] {
        let labels = [&*format!("source=\"{source}\"")];
        assert_eq!(world.value("idempotent_collector_errors_total", &labels), Some(1.0), "{source}");
    }
}
