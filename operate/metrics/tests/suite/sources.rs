//! The names of the sources, sources on Redis, and sources that fail.
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use idempotent_core::{Alerts, MemoryStore, MemoryTier, Policy, TieredStore};
use idempotent_harness::servers::RedisServer;
use idempotent_mq::{
    Consumer, DeadLetters, KeyFrom, MemoryQueue, Message, Messages, SourceError, SourceErrorKind, StoredLetter,
};
use idempotent_redis::{DelayMessage, DelayQueue, RedisStore};
use idempotent_sqlx::{DelayTable, Outbox, Relay, ScheduledTask};

use crate::collector::{Broker, in_memory};
use crate::world::World;

/// Dead letters of a broker that is unreachable after the first count.
#[derive(Debug)]
struct LostBroker {
    counted: bool,
}

impl LostBroker {
    fn lost<T>() -> Result<T, SourceError> {
        Err(SourceError::new(SourceErrorKind::Transient, "connection refused"))
    }
}

#[async_trait]
impl DeadLetters for LostBroker {
    async fn count(&mut self) -> Result<u64, SourceError> {
        if std::mem::replace(&mut self.counted, true) { Self::lost() } else { Ok(3) }
    }

    async fn next(&mut self) -> Result<Option<StoredLetter>, SourceError> {
        Self::lost()
    }

    async fn put_back(&mut self) -> Result<bool, SourceError> {
        Self::lost()
    }

    async fn discard(&mut self) -> Result<bool, SourceError> {
        Self::lost()
    }
}

#[tokio::test]
async fn a_source_that_fails_has_unknown_gauges_and_counts_as_an_error() {
    let (world, pool) = (World::new(), in_memory().await);
    // The clock does not move between the writing and the count. SQLite's own clock is rounded to a millisecond.
    let clock = Arc::new(world.clock.clone());
    let table = DelayTable::builder(pool.clone()).clock(clock).create(true).open().await.unwrap();
    table.put(&ScheduledTask::after("1", Duration::ZERO, b"planted".to_vec())).await.unwrap();
    let outbox = Outbox::builder(pool.clone()).create(true).open().await.unwrap();
    let mut collector = world.collector().delay_table("reminders", &table).outbox("payments", &outbox);
    collector = collector.dead_letters("orders", LostBroker { counted: false });
    collector.collect().await;
    let gauges = || {
        [
            world.value("idempotent_delay_messages", &["queue=\"reminders\"", "state=\"ready\""]),
            world.value("idempotent_delay_oldest_ready_seconds", &[]),
            world.value("idempotent_outbox_messages", &["outbox=\"payments\"", "status=\"dead\""]),
            world.value("idempotent_outbox_oldest_unsent_seconds", &[]),
            world.value("idempotent_dead_letters", &["queue=\"orders\""]),
        ]
        .map(Option::unwrap)
    };
    assert_eq!(gauges(), [1.0, 0.0, 0.0, 0.0, 3.0]);
    pool.close().await;
    collector.collect().await;
    assert!(gauges().into_iter().all(f64::is_nan), "{:?}", gauges());
    for source in ["delay:reminders", "outbox:payments", "dead_letters:orders"] {
        let labels = [&*format!("source=\"{source}\"")];
        assert_eq!(world.value("idempotent_collector_errors_total", &labels), Some(1.0), "{source}");
    }
}

#[tokio::test]
async fn a_collector_shows_the_names_of_its_sources() {
    let (world, pool) = (World::new(), in_memory().await);
    let executor = world.executor(Policy::new());
    let queue = MemoryQueue::new("orders");
    let handling = Messages::raw().keyed(KeyFrom::message_id()).run(async |_: Message<()>| ());
    let consumer = Consumer::builder(queue.source(), "billing", &executor).build(handling).unwrap();
    let outbox = Outbox::builder(pool).create(true).open().await.unwrap();
    let relay = Relay::new(&outbox, Arc::new(Broker));
    let collector = world.collector().consumer("billing", consumer.counters()).relay("payments", relay.counters());
    let collector = collector.executor("orders", &executor).alerts(&Alerts::builder().start().unwrap());
    let collector = collector.tiers("orders", &TieredStore::new(MemoryStore::new(), MemoryTier::new()));
    let names = r#"["consumer:billing", "relay:payments", "executor:orders", "alerts", "tiers:orders"]"#;
    let shown = format!("{collector:?}");
    assert!(shown.contains(names), "{shown}");
}

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
