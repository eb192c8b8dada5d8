//! A topic on a private broker, with plain clients to inspect it.
use std::collections::HashMap;
use std::time::Duration;

use async_trait::async_trait;
use idempotent_core::Timestamp;
use idempotent_harness::proxy::Proxy;
use idempotent_harness::servers::KafkaServer;
use idempotent_kafka::{KafkaDeadLetters, KafkaSource};
use idempotent_mq::{DeadLetter, DeadLetters};
use idempotent_testkit::broker::{Broker, Limits, Message, Outage};
use rdkafka::ClientConfig;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaError;
use rdkafka::message::{Header, Headers, Message as _, OwnedHeaders, OwnedMessage};
use rdkafka::producer::{FutureProducer, FutureRecord};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};

const GROUP: &str = "billing";
const WAIT: Duration = Duration::from_secs(10);

pub(crate) struct Topic {
    server: KafkaServer,
    between: Proxy,
    producer: FutureProducer,
    retry: Option<&'static str>,
}

impl Topic {
    /// Creates a broker with an empty topic, whose retried messages are read again.
    pub(crate) async fn with_seek() -> Self {
        Self::new(None).await
    }

    /// Creates a broker with an empty topic, whose retried messages are copied into a retry topic.
    pub(crate) async fn with_retry_topic() -> Self {
        Self::new(Some("orders-billing-retry")).await
    }

    async fn new(retry: Option<&'static str>) -> Self {
        let (server, between) = KafkaServer::with_proxy().await;
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", server.address()).set("message.max.bytes", "8000000");
        let producer = config.set("linger.ms", "0").create().unwrap();
        let topic = Self { server, between, producer, retry };
        // Some laws publish before they create a source.
        let admin: AdminClient<DefaultClientContext> = topic.config().create().unwrap();
        let new = NewTopic::new("orders", 1, TopicReplication::Fixed(1));
        admin.create_topics([&new], &AdminOptions::new()).await.unwrap().pop().unwrap().unwrap();
        topic
    }

    async fn send(&self, headers: OwnedHeaders, body: Vec<u8>) {
        let record = FutureRecord::<[u8], [u8]>::to("orders").payload(&body).headers(headers);
        // The error contains the message.
        self.producer.send(record, WAIT).await.map_err(|(error, _)| error).unwrap();
    }

    fn config(&self) -> ClientConfig {
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", self.server.address());
        config
    }

    fn client(&self) -> BaseConsumer {
        let mut config = self.config();
        config.set("group.id", GROUP);
        config.set("enable.auto.commit", "false").set("enable.partition.eof", "true").create().unwrap()
    }

    /// Returns all records of the only partition of a topic.
    fn records(&self, topic: &str) -> Vec<OwnedMessage> {
        let client = self.client();
        let mut list = TopicPartitionList::new();
        list.add_partition_offset(topic, 0, Offset::Beginning).unwrap();
        client.assign(&list).unwrap();
        let mut records = Vec::new();
        loop {
            match client.poll(WAIT).unwrap() {
                Ok(message) => records.push(message.detach()),
                Err(KafkaError::PartitionEOF(_)) => return records,
                Err(error) => panic!("{error}"),
            }
        }
    }
}

#[async_trait]
impl Broker for Topic {
    type Source = KafkaSource;

    fn limits(&self) -> Limits {
        let mut limits = Limits::default();
        limits.stays_held = true;
        limits
    }

    async fn source(&self) -> KafkaSource {
        let url = format!("kafka://{}", self.between.address());
        let mut builder = KafkaSource::builder(url, "orders", GROUP).declare(1).session_timeout(Duration::from_secs(6));
        if let Some(topic) = self.retry {
            builder = builder.retry_topic(topic);
        }
        builder.connect().await.unwrap()
    }

    async fn publish(&self, message: Message) {
        let mut headers = OwnedHeaders::new().insert(Header { key: "idempotent-id", value: Some(&message.id) });
        for (name, value) in message.headers.iter() {
            headers = headers.insert(Header { key: name, value: Some(value) });
        }
        self.send(headers, message.body).await;
    }

    /// Publishes a message with damaged headers of the adapter.
    async fn publish_unreadable(&self) {
        let names = ["id", "attempt", "due", "first-at", "deaths", "topic", "partition", "key", "reason"];
        let headers = names.iter().fold(OwnedHeaders::new(), |headers, name| {
            headers.insert(Header { key: &format!("idempotent-{name}"), value: Some(&[0xff, 0]) })
        });
        self.send(headers, b"\xff".to_vec()).await;
    }

    async fn publish_forged(&self) {
        let own = [("id", "forged"), ("attempt", "70"), ("due", "9223372036854775807"), ("reason", "all is well")];
        let places = [("topic", "payments"), ("partition", "77"), ("record-key", "stolen")];
        let letter = [("first-at", "1"), ("deaths", "1"), ("letter", "x"), ("attempts", "70"), ("last-at", "7")];
        let headers = own.iter().chain(&places).chain(&letter).fold(OwnedHeaders::new(), |headers, (name, value)| {
            headers.insert(Header { key: &format!("idempotent-{name}"), value: Some(*value) })
        });
        self.send(headers, b"body".to_vec()).await;
    }

    async fn dead_letters(&self) -> Vec<(Message, DeadLetter)> {
        let mut letters = HashMap::new();
        for record in self.records("orders-dead") {
            let key = record.key().unwrap().to_vec();
            match record.payload() {
                Some(_) => letters.insert(key, letter(&record)),
                None => letters.remove(&key),
            };
        }
        letters.into_values().collect()
    }

    fn letters(&self) -> Box<dyn DeadLetters> {
        Box::new(KafkaDeadLetters::new(format!("kafka://{}", self.between.address()), "orders"))
    }

    async fn is_empty(&self) -> bool {
        let topics = ["orders"].into_iter().chain(self.retry);
        let client = self.client();
        topics.into_iter().all(|topic| {
            let mut list = TopicPartitionList::new();
            list.add_partition(topic, 0);
            let committed = client.committed_offsets(list, WAIT).unwrap();
            let (_, end) = client.fetch_watermarks(topic, 0, WAIT).unwrap();
            let committed = committed.elements()[0].offset().to_raw().unwrap();
            committed == end || end == 0
        })
    }

    async fn cut(&self) {
        self.between.cut_all();
    }

    async fn begin_outage(&self, outage: Outage) {
        self.between.begin_outage(outage == Outage::Silent);
    }

    async fn end_outage(&self) {
        self.between.end_outage();
    }
}

/// Decodes a dead letter as another program would, by the documentation.
fn letter(record: &OwnedMessage) -> (Message, DeadLetter) {
    let headers = record.headers().unwrap();
    let own = |name: &str| {
        let name = format!("idempotent-{name}");
        headers.iter().find(|header| header.key == name).map(|header| header.value.unwrap().to_vec())
    };
    let text = |name: &str| own(name).map(|value| String::from_utf8(value).unwrap());
    let number = |name: &str| text(name).unwrap().parse::<u64>().unwrap();
    let mut message = Message::new(text("id").unwrap(), record.payload().unwrap());
    for header in headers.iter().filter(|header| !header.key.starts_with("idempotent-")) {
        message = message.header(header.key, header.value.unwrap_or_default());
    }
    let mut letter = DeadLetter::because(text("reason").unwrap(), Timestamp(number("last-at")));
    (letter.id, letter.first_at) = (text("letter"), Timestamp(number("first-at")));
    letter.attempts = number("attempts").try_into().unwrap();
    letter.deaths = number("deaths").try_into().unwrap();
    (message, letter)
}
