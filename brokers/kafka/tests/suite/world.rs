//! A broker per test, and helpers.
use std::time::{Duration, Instant};

use idempotent_core::{Executor, MemoryStore};
use idempotent_harness::proxy::Proxy;
use idempotent_harness::servers::KafkaServer;
use idempotent_kafka::{KafkaSource, KafkaSourceBuilder, KafkaTag};
use idempotent_mq::{Delivery, KeyFrom, Message, MessageHandler, Messages, Settlement, Source};
use idempotent_testkit::broker::testing::billing;
pub(crate) use idempotent_testkit::broker::testing::{LIMIT, Running, one, receive, retry};
use rdkafka::ClientConfig;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::message::OwnedHeaders;
use rdkafka::mocking::MockCluster;
use rdkafka::producer::{DefaultProducerContext, FutureProducer, FutureRecord};
use rdkafka::topic_partition_list::TopicPartitionList;
use tokio::sync::watch;

pub(crate) const GROUP: &str = "billing";

pub(crate) type Held = (Delivery, KafkaTag);

pub(crate) struct World {
    pub(crate) server: KafkaServer,
    /// A proxy, which all clients use.
    pub(crate) between: Proxy,
    pub(crate) producer: FutureProducer,
    pub(crate) executor: Executor,
}

impl World {
    /// Creates a broker with the topic `orders` of this number of partitions.
    pub(crate) async fn new(partitions: i32) -> Self {
        let (server, between) = KafkaServer::with_proxy().await;
        let producer = config(&server).set("linger.ms", "0").create().unwrap();
        let world = Self { server, between, producer, executor: Executor::new(MemoryStore::new()) };
        world.create("orders", partitions).await;
        world
    }

    pub(crate) async fn create(&self, topic: &str, partitions: i32) {
        let admin: AdminClient<DefaultClientContext> = config(&self.server).create().unwrap();
        let new = NewTopic::new(topic, partitions, TopicReplication::Fixed(1));
        admin.create_topics([&new], &AdminOptions::new()).await.unwrap().pop().unwrap().unwrap();
    }

    pub(crate) fn url(&self) -> String {
        format!("kafka://{}", self.between.address())
    }

    pub(crate) fn builder(&self) -> KafkaSourceBuilder {
        builder_at(&self.url())
    }

    pub(crate) async fn source(&self) -> KafkaSource {
        self.builder().connect().await.unwrap()
    }

    pub(crate) async fn send(&self, body: &str) {
        self.send_to(0, None, Some(body.as_bytes()), OwnedHeaders::new()).await;
    }

    /// Produces a record, and returns its offset.
    pub(crate) async fn send_to(
        &self,
        partition: i32,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: OwnedHeaders,
    ) -> i64 {
        let mut record = FutureRecord::<[u8], [u8]>::to("orders").partition(partition).headers(headers);
        (record.key, record.payload) = (key, value);
        // The error contains the message.
        let sent = self.producer.send(record, LIMIT).await;
        sent.map_err(|(error, _)| error).unwrap().offset
    }

    /// Returns the committed offset of a partition of `orders`, or `None` if there is none.
    pub(crate) fn committed(&self, partition: i32) -> Option<i64> {
        committed(&self.client(), partition)
    }

    /// Waits until this offset of a partition of `orders` is committed. Asks the broker again after each answer.
    pub(crate) async fn until_committed(&self, partition: i32, offset: i64) {
        until_committed(self.client(), partition, offset).await;
    }

    fn client(&self) -> BaseConsumer {
        config(&self.server).set("group.id", GROUP).create().unwrap()
    }

    pub(crate) fn run(&self, source: KafkaSource, handling: MessageHandler) -> Running {
        self.run_on(source, &self.executor, handling)
    }

    /// Runs a consumer with an executor of its own.
    pub(crate) fn run_on(&self, source: KafkaSource, executor: &Executor, handling: MessageHandler) -> Running {
        Running::new(billing(source, executor).build(handling).unwrap())
    }
}

/// Waits until this offset of a partition of `orders` is committed.
pub(crate) async fn until_committed(client: BaseConsumer, partition: i32, offset: i64) {
    let waiting = tokio::task::spawn_blocking(move || {
        let start = Instant::now();
        while committed(&client, partition) != Some(offset) {
            assert!(start.elapsed() < LIMIT, "{:?} is committed, not {offset}", committed(&client, partition));
        }
    });
    waiting.await.unwrap();
}

fn committed(client: &BaseConsumer, partition: i32) -> Option<i64> {
    let mut list = TopicPartitionList::new();
    list.add_partition("orders", partition);
    let committed = client.committed_offsets(list, LIMIT).unwrap();
    committed.elements()[0].offset().to_raw().filter(|offset| *offset >= 0)
}

/// A simulated cluster, whose answers a test can replace by errors.
pub(crate) type Simulated = MockCluster<'static, DefaultProducerContext>;

/// Starts a simulated cluster with the topics of a source, and returns the cluster and its URL.
pub(crate) fn simulated() -> (Simulated, String) {
    let cluster = MockCluster::new(1).unwrap();
    for topic in ["orders", "orders-dead"] {
        cluster.create_topic(topic, 1, 1).unwrap();
    }
    let url = format!("kafka://{}", cluster.bootstrap_servers());
    (cluster, url)
}

pub(crate) fn config(server: &KafkaServer) -> ClientConfig {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", server.address());
    config
}

/// Returns a builder for a source whose messages are taken over 6 s after a kill.
pub(crate) fn builder_at(url: &str) -> KafkaSourceBuilder {
    KafkaSource::builder(url, "orders", GROUP).declare(1).session_timeout(Duration::from_secs(6))
}

/// Returns a handler that counts its runs, one for each message.
pub(crate) fn counting() -> (MessageHandler, Runs) {
    let (counted, runs) = watch::channel(0);
    let handling = Messages::raw().keyed(KeyFrom::message_id()).run(move |_: Message<()>| {
        counted.send_modify(|runs| *runs += 1);
        async { Ok::<_, String>(()) }
    });
    (handling, Runs(runs))
}

/// The number of runs of a handler.
pub(crate) struct Runs(watch::Receiver<u32>);

impl Runs {
    pub(crate) fn number(&self) -> u32 {
        *self.0.borrow()
    }
}

pub(crate) async fn settle(source: &KafkaSource, held: &Held, how: Settlement) {
    source.settler().settle(&held.0, &held.1, &how).await.unwrap();
}

pub(crate) fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}
