//! The cost of messages over Kafka: `cargo xtask bench kafka`.
//!
//! One topic for each slice, filled before it is consumed, in several ways: by a bare client that stores the offset of each message
//! and commits at intervals, and by the consumer runtime without keys, and with keys in memory and in Redis. Each figure is compared
//! with the figure of the bare client in the same round, measured alternately, so that a busy machine slows down both. Ratios are
//! medians of the ratios within a round. The broker is tansu, with its messages in memory.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, missing_docs, unreachable_pub)]
#[path = "../mq/broker.rs"]
#[allow(dead_code, reason = "other benches use more of this module")]
mod broker;

use std::sync::Mutex;
use std::time::Duration;

use futures_util::future::join_all;
use idempotent::kafka::KafkaSource;
use idempotent_harness::servers::KafkaServer;
use rdkafka::ClientConfig;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::consumer::{CommitMode, Consumer, StreamConsumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::producer::{FutureProducer, FutureRecord};

use crate::broker::{Begun, Broker, COMPARED, Consumed, MESSAGES, body};

/// The topic for dead letters of all slices.
const DEAD: &str = "orders-dead";
/// The number of partitions of a topic.
const PARTITIONS: i32 = 4;
/// The longest time in which the broker collects messages for an answer. tansu waits for this time even if it has messages.
const FETCH_WAIT: &str = "fetch.wait.max.ms";
const FETCH_WAIT_MS: &str = "1";
/// The session timeout. tansu assigns the partitions of a new group after half of it.
const SESSION: Duration = Duration::from_secs(1);

fn main() {
    broker::bench("kafka", &COMPARED, MESSAGES, Kafka::start);
}

struct Kafka {
    server: KafkaServer,
    admin: AdminClient<DefaultClientContext>,
    producer: FutureProducer,
    body: String,
    /// The topic that was filled last.
    topic: Mutex<Option<String>>,
}

impl Kafka {
    async fn start() -> Self {
        let server = KafkaServer::start();
        let config = config(&server.url());
        let (admin, producer) = (config.create().unwrap(), config.create().unwrap());
        let kafka = Self { server, admin, producer, body: body(), topic: Mutex::default() };
        kafka.create(DEAD, 1).await;
        kafka
    }

    async fn send(&self, topic: &str, number: u64) {
        let id = format!("message-{number}");
        let headers = OwnedHeaders::new().insert(Header { key: "idempotent-id", value: Some(&id) });
        let partition = i32::try_from(number % u64::from(PARTITIONS.unsigned_abs())).unwrap();
        let record = FutureRecord::<(), str>::to(topic).payload(&self.body).headers(headers).partition(partition);
        // The error contains the message.
        self.producer.send(record, Duration::from_secs(60)).await.map_err(|(error, _)| error).unwrap();
    }

    async fn create(&self, topic: &str, partitions: i32) {
        let new = NewTopic::new(topic, partitions, TopicReplication::Fixed(1));
        self.admin.create_topics([&new], &AdminOptions::new()).await.unwrap().pop().unwrap().unwrap();
    }

    fn topic(&self) -> String {
        self.topic.lock().unwrap().clone().expect("a filled topic")
    }
}

/// Each slice has a topic and a consumer group of its own.
impl Broker for Kafka {
    type Source = KafkaSource;

    fn url(&self) -> String {
        self.server.url()
    }

    async fn fill(&self, from: u64, messages: u64) {
        let topic = format!("orders-{from}");
        self.create(&topic, PARTITIONS).await;
        let old = self.topic.lock().unwrap().replace(topic.clone());
        if let Some(old) = old {
            // The broker keeps messages in memory, so the messages of all slices would fill its memory.
            self.admin.delete_topics(&[&old], &AdminOptions::new()).await.unwrap().pop().unwrap().unwrap();
        }
        let sent = (from..from + messages).map(|number| self.send(&topic, number));
        join_all(sent).await;
    }

    async fn source(&self, url: &str) -> KafkaSource {
        let url = format!("{url}?{FETCH_WAIT}={FETCH_WAIT_MS}");
        let source = KafkaSource::builder(url, self.topic(), self.topic());
        source.dead_letters(DEAD).session_timeout(SESSION).connect().await.unwrap()
    }

    /// Stores the offset of each handled message, and commits every 100 ms and at the end.
    async fn bare(&self, url: &str, _: bool, messages: u64) -> Consumed {
        let topic = self.topic();
        let mut config = config(url);
        config.set(FETCH_WAIT, FETCH_WAIT_MS);
        config.set("session.timeout.ms", SESSION.as_millis().to_string()).set("heartbeat.interval.ms", "100");
        config.set("group.id", &topic).set("auto.offset.reset", "earliest").set("auto.commit.interval.ms", "100");
        // The offset of a message is stored once it is handled.
        let consumer: StreamConsumer = config.set("enable.auto.offset.store", "false").create().unwrap();
        consumer.subscribe(&[&topic]).unwrap();
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
}

fn config(url: &str) -> ClientConfig {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", url.trim_start_matches("kafka://"));
    config
}
