//! Counts and sizes that a collector reads.
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use idempotent_core::{
    Alert, AlertKind, Alerts, Call, Executor, MemoryStore, MemoryTier, Policy, TieredStore, Timestamp,
};
use idempotent_mq::{
    Consumer, KeyFrom, MemoryDeadLetters, MemoryQueue, Message, Messages, OutboundMessage, Publish, PublishError,
    PublishErrorKind, Published,
};
use idempotent_sqlx::{Outbox, Relay};
use sqlx::SqlitePool;
use tokio::sync::oneshot;

use crate::world::{World, identity, runs};

#[tokio::test]
async fn a_consumer_shows_its_deliveries_their_age_and_its_state() {
    let world = World::new();
    let queue = MemoryQueue::new("orders").clock(Arc::new(world.clock.clone()));
    ["17", "17", "18", "what?"].iter().for_each(|body| queue.send(*body));
    let executor = world.executor(Policy::new());
    let (entered, wait) = (Arc::new(tokio::sync::Semaphore::new(0)), Arc::new(tokio::sync::Semaphore::new(0)));
    let (enter, gate) = (entered.clone(), wait.clone());
    let handling =
        Messages::json().keyed(KeyFrom::body("order", |order: &u64| order.to_string())).run(move |_: Message<u64>| {
            let (enter, gate) = (enter.clone(), gate.clone());
            async move {
                enter.add_permits(1);
                gate.acquire().await.map_err(|_| "closed")?.forget();
                Ok::<(), &str>(())
            }
        });
    let consumer = Consumer::builder(queue.source(), "billing", &executor).concurrency(5).observer(world.observer());
    let consumer = consumer.build(handling).unwrap();
    let mut collector = world.collector().consumer("billing", consumer.counters());
    collector = collector.dead_letters("orders", MemoryDeadLetters::new(&queue));
    let consuming = tokio::spawn(consumer.run(queue.drained()));
    entered.acquire_many(2).await.unwrap().forget();
    collector.collect().await;
    let gauge = |name: &str| world.value(&format!("idempotent_consumer_{name}"), &["group=\"billing\""]);
    assert_eq!((gauge("running"), gauge("capacity"), gauge("paused")), (Some(2.0), Some(5.0), Some(0.0)));
    assert_eq!((gauge("failed_nodes"), gauge("node_outages_total")), (Some(0.0), Some(0.0)));
    assert!(gauge("held") >= Some(2.0));
    world.clock.advance(Duration::from_secs(3)).await;
    wait.add_permits(10);
    while !consuming.is_finished() {
        world.clock.advance(Duration::from_secs(1)).await;
    }
    consuming.await.unwrap().unwrap();
    collector.collect().await;
    collector.collect().await;
    let ended = |end: &str| world.value("idempotent_consumer_deliveries_total", &["group=\"billing\"", end]);
    assert_eq!((ended("end=\"acked\""), ended("end=\"dead_lettered\"")), (Some(3.0), Some(1.0)), "counted once");
    assert_eq!((gauge("held"), gauge("running"), gauge("undecodable_total")), (Some(0.0), Some(0.0), Some(1.0)));
    assert_eq!(gauge("delivery_age_seconds_count"), Some(4.0), "each message has one last settlement");
    assert!(
        gauge("delivery_age_seconds_sum") >= Some(6.0),
        "two messages took three seconds: {:?}",
        gauge("delivery_age_seconds_sum")
    );
    assert_eq!(world.value("idempotent_dead_letters", &["queue=\"orders\""]), Some(1.0));
}

/// A publisher that refuses the topic `refused`.
#[derive(Debug)]
pub struct Broker;

#[async_trait]
impl Publish for Broker {
    async fn publish(&self, messages: &[OutboundMessage]) -> Vec<Result<Published, PublishError>> {
        let answer = |message: &OutboundMessage| match &*message.topic {
            "refused" => Err(PublishError::new(PublishErrorKind::Refused, "no such topic")),
            _ => Ok(Published::default()),
        };
        messages.iter().map(answer).collect()
    }
}

pub async fn in_memory() -> SqlitePool {
    let options = sqlx::sqlite::SqlitePoolOptions::new().max_connections(1).idle_timeout(None).max_lifetime(None);
    options.connect("sqlite::memory:").await.unwrap()
}

#[tokio::test]
async fn an_outbox_shows_its_backlog_and_its_relay_the_sends() {
    let (world, pool) = (World::new(), in_memory().await);
    let outbox = Outbox::builder(pool.clone()).create(true).open().await.unwrap();
    let mut tx = pool.begin().await.unwrap();
    for (id, topic) in [("1", "orders"), ("2", "orders"), ("3", "refused")] {
        outbox.enqueue(&mut tx, &OutboundMessage::new(topic, id, b"planted".to_vec())).await.unwrap();
    }
    tx.commit().await.unwrap();
    let relay = Relay::new(&outbox, Arc::new(Broker));
    let mut collector = world.collector().outbox("payments", &outbox).relay("payments", relay.counters());
    collector.collect().await;
    let messages = |status: &str| world.value("idempotent_outbox_messages", &["outbox=\"payments\"", status]);
    let sends = |result: &str| world.value("idempotent_outbox_sends_total", &["outbox=\"payments\"", result]);
    assert_eq!((messages("status=\"unsent\""), sends("result=\"sent\"")), (Some(3.0), Some(0.0)));
    assert_eq!(relay.round().await.unwrap().sent, 2);
    collector.collect().await;
    let sizes = ["status=\"unsent\"", "status=\"unconfirmed\"", "status=\"dead\""].map(messages);
    assert_eq!(sizes, [Some(1.0), Some(2.0), Some(0.0)]);
    assert_eq!((sends("result=\"sent\""), sends("result=\"failed\"")), (Some(2.0), Some(1.0)));
    assert!(world.value("idempotent_outbox_oldest_unsent_seconds", &[]) >= Some(0.0));
    assert_eq!(world.value("idempotent_outbox_given_up_total", &["outbox=\"payments\""]), Some(0.0));
}

#[tokio::test]
async fn tiers_alerts_and_executors_are_read_until_the_collector_stops() {
    let world = World::new();
    let store = TieredStore::new(MemoryStore::new(), MemoryTier::new());
    let executor = Executor::builder(store.clone()).build().unwrap();
    let alerts = Alerts::builder().start().unwrap();
    let collector = world.collector().tiers("orders", &store).alerts(&alerts).executor("orders", &executor);
    let (stop, stopped) = oneshot::channel::<()>();
    let running = tokio::spawn(collector.run(Duration::from_secs(10), async { drop(stopped.await) }));
    world.clock.settle().await;
    let lookups = |result: &str| world.value("idempotent_store_tier_lookups_total", &[result]);
    assert_eq!(lookups("result=\"hit\""), Some(0.0));
    for _ in 0..3 {
        runs(&executor, Call::new(identity("1")), Ok(1)).await;
    }
    alerts.raise(Alert::new(AlertKind::DeadLetter, "billing", Timestamp(0)));
    world.clock.advance(Duration::from_secs(9)).await;
    assert_eq!(lookups("result=\"hit\""), Some(0.0), "before the interval has passed");
    world.clock.advance(Duration::from_secs(1)).await;
    assert_eq!((lookups("result=\"hit\""), lookups("result=\"miss\"")), (Some(2.0), Some(1.0)));
    assert_eq!(world.value("idempotent_alerts_total", &["state=\"raised\""]), Some(1.0));
    let draining = || world.value("idempotent_draining", &["executor=\"orders\""]);
    assert_eq!((draining(), world.value("idempotent_waiters", &[])), (Some(0.0), Some(0.0)));
    executor.drain(Duration::ZERO).await;
    drop(stop);
    running.await.unwrap();
    assert_eq!(draining(), Some(1.0), "read once more at the end");
    assert_eq!(world.value("idempotent_build_info", &[]), Some(1.0));
}
