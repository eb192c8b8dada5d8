//! The topic of a slice, which is filled before it is consumed.
use std::sync::Mutex;
use std::time::Duration;

use futures_util::future::join_all;
use rdkafka::ClientConfig;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::producer::{FutureProducer, FutureRecord};

/// The maximum number of messages that a consumer holds.
pub const PREFETCH: usize = 256;
/// The topic for dead letters of all slices.
pub const DEAD: &str = "orders-dead";
/// The number of partitions of a topic.
const PARTITIONS: i32 = 4;

pub struct Queue {
    admin: AdminClient<DefaultClientContext>,
    producer: FutureProducer,
    body: String,
    topic: Mutex<Option<String>>,
}

impl Queue {
    /// Messages of a few hundred bytes, like a typical order.
    pub async fn new(config: &ClientConfig) -> Self {
        let lines = (0..8).map(|line| format!(r#"{{"sku":"desk-{line}","qty":{line},"cents":12900}}"#));
        let body = format!(r#"{{"order":17,"customer":"c-8431","lines":[{}]}}"#, lines.collect::<Vec<_>>().join(","));
        let (admin, producer) = (config.create().unwrap(), config.create().unwrap());
        let queue = Self { admin, producer, body, topic: Mutex::default() };
        queue.create(DEAD, 1).await;
        queue
    }

    /// Returns the topic that was filled last.
    pub fn topic(&self) -> String {
        self.topic.lock().unwrap().clone().expect("a filled topic")
    }

    /// Produces and confirms `messages` messages in a new topic. Their ids are their numbers, starting at `from`.
    pub async fn fill(&self, from: u64, messages: u64) {
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
}
