//! The topic, consumed in several ways.
use std::time::Duration;

use idempotent::kafka::KafkaSource;
use idempotent::{Executor, MemoryStore, RedisStore};
use idempotent_harness::servers::{KafkaServer, RedisServer};
use rdkafka::ClientConfig;
use rdkafka::consumer::{CommitMode, Consumer, StreamConsumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use tokio::runtime::Runtime;

use crate::consumed::{Begun, Consumed, TimedHandler};
use crate::topic::{DEAD, PREFETCH, Queue};

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Way {
    /// The bare client in a consumer group. It stores the offset of each handled message, and commits every 100 ms and at the end.
    Bare,
    /// The consumer runtime without keys.
    Unprotected,
    /// The consumer runtime with keys, in memory.
    Memory,
    /// The consumer runtime with keys, in Redis.
    Redis,
}

/// The longest time in which the broker collects messages for an answer. tansu waits for this time even if it has messages.
const FETCH_WAIT: &str = "fetch.wait.max.ms";
const FETCH_WAIT_MS: &str = "1";
/// The session timeout. tansu assigns the partitions of a new group after half of it.
const SESSION: Duration = Duration::from_secs(1);

/// The environment that all ways share.
pub struct Place {
    pub runtime: Runtime,
    pub queue: Queue,
    pub url: String,
    redis: Executor,
}

impl Place {
    pub fn new(kafka: &KafkaServer, redis: &RedisServer) -> Self {
        let runtime = crate::cpu::runtime();
        let (queue, store) = runtime.block_on(async {
            (Queue::new(&config(&kafka.url())).await, RedisStore::connect(redis.url()).await.unwrap())
        });
        Self { runtime, queue, url: kafka.url(), redis: Executor::new(store) }
    }

    /// Consumes `messages` existing messages of the filled topic, as the only member of a new group.
    pub fn consume(&self, way: Way, url: &str, messages: u64) -> Consumed {
        let topic = self.queue.topic();
        let (executor, handler) = match way {
            Way::Bare => return self.runtime.block_on(bare(url, &topic, messages)),
            Way::Unprotected => (Executor::new(MemoryStore::new()), TimedHandler::unprotected()),
            Way::Memory => (Executor::new(MemoryStore::new()), TimedHandler::keyed()),
            Way::Redis => (self.redis.clone(), TimedHandler::keyed()),
        };
        self.runtime.block_on(async {
            let options = format!("{url}?{FETCH_WAIT}={FETCH_WAIT_MS}");
            let source =
                KafkaSource::builder(options, topic.clone(), topic).dead_letters(DEAD).session_timeout(SESSION);
            handler.consume(source.connect().await.unwrap(), &executor, PREFETCH, messages).await
        })
    }
}

fn config(url: &str) -> ClientConfig {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", url.trim_start_matches("kafka://"));
    config
}

async fn bare(url: &str, topic: &str, messages: u64) -> Consumed {
    let mut config = config(url);
    config.set(FETCH_WAIT, FETCH_WAIT_MS);
    config.set("session.timeout.ms", SESSION.as_millis().to_string()).set("heartbeat.interval.ms", "100");
    config.set("group.id", topic).set("auto.offset.reset", "earliest").set("auto.commit.interval.ms", "100");
    // The offset of a message is stored once it is handled.
    let consumer: StreamConsumer = config.set("enable.auto.offset.store", "false").create().unwrap();
    consumer.subscribe(&[topic]).unwrap();
    let mut begun = None;
    for _ in 0..messages {
        let message = consumer.recv().await.unwrap();
        begun.get_or_insert_with(Begun::now);
        consumer.store_offset_from_message(&message).unwrap();
    }
    match consumer.commit_consumer_state(CommitMode::Sync) {
        // The client may have committed the last offset by itself.
        Ok(()) | Err(KafkaError::ConsumerCommit(RDKafkaErrorCode::NoOffset)) => {}
        Err(error) => panic!("{error}"),
    }
    begun.unwrap().ended()
}
