//! A Redis that loses its keys, and an outbox that knows what is consumed.
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use idempotent_core::Executor;
use idempotent_mq::{Consumer, ConsumerCounters, HandlerResult, KeyFrom, Message, Messages};
use idempotent_redis::RedisStore;
use idempotent_sqlx::OutboxStatus;
use idempotent_testkit::servers::{RedisServer, Value};

use super::laws::world::{World, message};
use crate::outbox::line::Line;

struct Service {
    redis: RedisServer,
    world: World,
    line: Line,
    counters: ConsumerCounters,
    runs: Arc<Mutex<BTreeMap<String, u32>>>,
    task: tokio::task::JoinHandle<()>,
}

impl Service {
    async fn start(skips: bool) -> Self {
        let (redis, world, line) = (RedisServer::start(), World::new().await, Line::new());
        world.put(&[message("a"), message("b")]).await;
        let executor = Executor::new(RedisStore::connect(redis.url()).await.unwrap());
        let runs: Arc<Mutex<BTreeMap<String, u32>>> = Arc::default();
        let counted = runs.clone();
        let handling = Messages::raw().keyed(KeyFrom::message_id()).run(move |message: Message<()>| {
            *counted.lock().unwrap().entry(message.delivery.id.clone().unwrap()).or_default() += 1;
            async { HandlerResult::Done }
        });
        let consumer = Consumer::builder(line.clone(), "billing", &executor).log(Arc::new(world.outbox.clone()));
        let consumer = consumer.skip_consumed(skips).build(handling).unwrap();
        let counters = consumer.counters();
        let task = tokio::spawn(async move { consumer.run(std::future::pending()).await.map(drop).unwrap() });
        Self { redis, world, line, counters, runs, task }
    }

    async fn deliver(&self, id: &str) {
        let settled = self.line.settled().len();
        self.line.deliver(&self.world.stored(id).await, settled as u64);
        self.line.has_settled(settled + 1).await;
        assert_eq!(self.line.settled()[settled], (id.to_owned(), "ack"));
    }

    /// How often this message ran.
    fn runs(&self, id: &str) -> u32 {
        self.runs.lock().unwrap().get(id).copied().unwrap_or_default()
    }

    /// The keys of the store.
    fn keys(&self) -> usize {
        match self.redis.command(&["KEYS", "idempotent*"]) {
            Value::Array(keys) => keys.len(),
            other => panic!("{other:?}"),
        }
    }

    /// Consumes one message, loses its key, and takes it again, and then another one.
    async fn loses_its_keys_by(self, lose: impl FnOnce(&Self)) -> (u32, u64) {
        self.deliver("a").await;
        self.deliver("a").await;
        assert_eq!(self.runs("a"), 1);
        assert!(self.keys() > 0, "the test sees the store's keys");
        lose(&self);
        assert_eq!(self.keys(), 0);
        self.deliver("a").await;
        self.deliver("b").await;
        assert_eq!(self.runs("b"), 1, "a message that is not consumed runs");
        assert_eq!(self.world.status("a").await, OutboxStatus::Confirmed);
        let ended = (self.runs("a"), self.counters.counts().skipped);
        self.task.abort();
        ended
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
    assert_eq!(Service::start(true).await.loses_its_keys_by(flush).await, (1, 2));
}

#[tokio::test]
async fn a_consumed_message_has_no_second_effect_after_its_key_was_evicted() {
    assert_eq!(Service::start(true).await.loses_its_keys_by(evict).await, (1, 2));
}

/// What the skip is for: the store alone cannot know.
#[tokio::test]
async fn a_consumer_that_does_not_skip_has_a_second_effect_after_flushall() {
    assert_eq!(Service::start(false).await.loses_its_keys_by(flush).await, (2, 0));
}
