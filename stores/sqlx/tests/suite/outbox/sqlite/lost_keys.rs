//! A Redis that loses its keys, and an outbox that knows what is consumed.
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use idempotent_core::Executor;
use idempotent_harness::servers::{RedisServer, Value};
use idempotent_mq::{Consumer, ConsumerCounters, HandlerResult, KeyFrom, Message, Messages};
use idempotent_redis::RedisStore;
use idempotent_sqlx::OutboxStatus;

use super::common::world::{World, message};
use crate::outbox::memory_queue::Line;

/// A store and an outbox, and how often each message ran.
struct Service {
    redis: RedisServer,
    world: World,
    runs: Arc<Mutex<BTreeMap<String, u32>>>,
}

/// A process of the service. Its store remembers some keys for itself, so only another process sees what Redis has lost.
struct Process {
    line: Line,
    counters: ConsumerCounters,
    task: tokio::task::JoinHandle<()>,
}

impl Service {
    async fn new() -> Self {
        let (redis, world) = (RedisServer::start(), World::new().await);
        world.put(&[message("a"), message("b")]).await;
        Self { redis, world, runs: Arc::default() }
    }

    async fn process(&self, skips: bool) -> Process {
        let (line, counted) = (Line::new(), self.runs.clone());
        // Eviction is what a test wants to see.
        let store = RedisStore::builder(self.redis.url()).allow_eviction(true).connect().await.unwrap();
        let handling = Messages::raw().keyed(KeyFrom::message_id()).run(move |message: Message<()>| {
            *counted.lock().unwrap().entry(message.delivery.id.clone().unwrap()).or_default() += 1;
            async { HandlerResult::Done }
        });
        let consumer = Consumer::builder(line.clone(), "billing", Executor::new(store));
        let consumer = consumer.log(Arc::new(self.world.outbox.clone())).skip_consumed(skips).build(handling).unwrap();
        let counters = consumer.counters();
        let task = tokio::spawn(async move { consumer.run(std::future::pending()).await.map(drop).unwrap() });
        Process { line, counters, task }
    }

    /// Delivers a message, which the process acknowledges.
    async fn deliver(&self, id: &str, to: &Process) {
        let settled = to.line.settled().len();
        to.line.deliver(&self.world.stored(id).await, settled as u64);
        to.line.has_settled(settled + 1).await;
        assert_eq!(to.line.settled()[settled], (id.to_owned(), "ack"));
    }

    fn runs(&self, id: &str) -> u32 {
        self.runs.lock().unwrap().get(id).copied().unwrap_or_default()
    }

    /// The records of the store, and the key that each start of a process writes.
    fn keys(&self) -> usize {
        self.count("idempotent*")
    }

    fn records(&self) -> usize {
        self.count("idempotent:*:{*}")
    }

    fn count(&self, pattern: &str) -> usize {
        match self.redis.command(&["KEYS", pattern]) {
            Value::Array(keys) => keys.len(),
            other => panic!("{other:?}"),
        }
    }

    /// Consumes a message in one process, loses its key, and delivers it twice to another process. Returns how often the message
    /// ran, and what the other process skipped. A skip leaves the key absent.
    async fn loses_its_keys_by(self, lose: impl FnOnce(&Self), skips: bool) -> (u32, u64) {
        let first = self.process(skips).await;
        self.deliver("a", &first).await;
        first.task.abort();
        assert_eq!(self.runs("a"), 1);
        assert_eq!(self.records(), 1, "the test sees the record");
        lose(&self);
        assert_eq!(self.keys(), 0);
        let second = self.process(skips).await;
        for _ in 0..2 {
            self.deliver("a", &second).await;
            assert_eq!(self.records(), usize::from(!skips), "only a run writes a record");
        }
        self.deliver("b", &second).await;
        second.task.abort();
        assert_eq!(self.runs("b"), 1, "a message that is not consumed runs");
        assert_eq!(self.world.status("a").await, OutboxStatus::Confirmed);
        (self.runs("a"), second.counters.counts().skipped)
    }
}

fn flush(service: &Service) {
    service.redis.command(&["FLUSHALL"]);
}

/// Redis removes keys for others as soon as its memory is full.
fn evict(service: &Service) {
    service.redis.command(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]);
    let used: u64 = service.redis.info("used_memory").parse().unwrap();
    service.redis.command(&["CONFIG", "SET", "maxmemory", &(used + 2_000_000).to_string()]);
    let large = "x".repeat(100_000);
    for number in 0..10_000 {
        if service.keys() == 0 {
            let evicted: u64 = service.redis.info("evicted_keys").parse().unwrap();
            assert!(evicted > 0);
            service.redis.command(&["CONFIG", "SET", "maxmemory", "0"]);
            return;
        }
        service.redis.command(&["SET", &format!("of another service {number}"), &large]);
    }
    panic!("nothing is evicted");
}

#[tokio::test]
async fn a_consumed_message_has_no_second_effect_after_flushall() {
    assert_eq!(Service::new().await.loses_its_keys_by(flush, true).await, (1, 2));
}

#[tokio::test]
async fn a_consumed_message_has_no_second_effect_after_its_key_was_evicted() {
    assert_eq!(Service::new().await.loses_its_keys_by(evict, true).await, (1, 2));
}

/// The reason for the skip: Redis alone cannot know what it has lost.
#[tokio::test]
async fn a_consumer_that_does_not_skip_has_a_second_effect_after_both() {
    assert_eq!(Service::new().await.loses_its_keys_by(flush, false).await, (2, 0));
    assert_eq!(Service::new().await.loses_its_keys_by(evict, false).await, (2, 0));
}
