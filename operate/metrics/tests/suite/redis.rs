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
    assert_eq!(world.value("idempotent_delay_messages", &["queue=\"reminders\"", "state=\"ready\""]), Some(1.0));
}
