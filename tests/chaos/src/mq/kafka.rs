//! Kafka.
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use async_trait::async_trait;
use idempotent::kafka::{KafkaSource, KafkaSourceBuilder};
use idempotent::mq::Delivery;
use idempotent_harness::proxy::Proxy;
use idempotent_harness::servers::KafkaServer;
use rdkafka::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaError;
use rdkafka::message::{BorrowedMessage, Header, Headers, Message, OwnedHeaders};
use rdkafka::producer::{FutureProducer, FutureRecord};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};

use super::broker::{Broker, Letter, QUEUE};
use super::copy::Copy;
use crate::deadline::connected;
use crate::server::Server;

pub(super) struct Kafka {
    // Dropped in this order.
    publisher: FutureProducer,
    judge: Arc<Judge>,
    proxy: Proxy,
    server: KafkaServer,
}

/// A client that reads the final contents of the topics.
struct Judge {
    client: BaseConsumer,
    /// The topics that the group reads.
    topics: Vec<&'static str>,
}

const GROUP: &str = "billing";
const RETRIES: &str = "orders-billing-retry";
const DEAD: &str = "orders-dead";
/// The prefix of the adapter's headers.
const MARK: &str = "idempotent-";
const ID: &str = "idempotent-id";
/// The headers with the record key and the value of a dead letter's message.
const RECORD_KEY: &str = "idempotent-record-key";
/// Some for each worker, because a retry pauses its partition.
const PARTITIONS: u32 = 16;
/// The time for a confirmation.
const SOON: Duration = Duration::from_secs(2);
/// The time for an answer to the judge, when there are no faults.
const PATIENCE: Duration = Duration::from_secs(30);
/// The time after which another worker takes over the partitions of a killed or stopped one.
const SESSION: Duration = Duration::from_secs(6);

/// Joins the group once the broker can be reached. With `copies`, a message is retried by a copy in another topic.
pub(super) async fn source(url: &str, copies: bool) -> KafkaSource {
    connected(|| builder(url, copies).connect()).await
}

fn builder(url: &str, copies: bool) -> KafkaSourceBuilder {
    let source = KafkaSource::builder(url, QUEUE, GROUP).declare(PARTITIONS).session_timeout(SESSION);
    if copies { source.retry_topic(RETRIES) } else { source }
}

/// Sends a dead letter without headers, which is a flaw.
pub(super) async fn bury_bare(url: &str, delivery: &Delivery) -> anyhow::Result<()> {
    let producer = publisher(url)?;
    let letter = FutureRecord::<[u8], [u8]>::to(DEAD).payload(&delivery.body);
    producer.send(letter, SOON).await.map_err(|(error, _)| error)?;
    Ok(())
}

fn config(url: &str) -> ClientConfig {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", url.trim_start_matches("kafka://"));
    config
}

/// Creates a client that repeats nothing by itself.
fn publisher(url: &str) -> anyhow::Result<FutureProducer> {
    let mut config = config(url);
    config.set("acks", "all").set("retries", "0").set("linger.ms", "0");
    // The end of a partition that tansu returns is that of the first message of the last batch.
    config.set("batch.num.messages", "1");
    Ok(config.set("message.timeout.ms", SOON.as_millis().to_string()).create()?)
}

impl Kafka {
    pub(super) async fn start(copies: bool) -> anyhow::Result<Self> {
        let (server, proxy) = KafkaServer::with_proxy().await;
        let url = format!("kafka://{}", proxy.address());
        // A member that joins and leaves at once may stop the group: tansu does not replace a leader that leaves while the group forms.
        connected(|| builder(&url, copies).prepare_topics()).await;
        // The client needs a group to read committed offsets and partitions. It does not join the group.
        let mut judge = config(&url);
        judge.set("group.id", GROUP).set("enable.auto.commit", "false").set("enable.partition.eof", "true");
        let topics = if copies { vec![QUEUE, RETRIES] } else { vec![QUEUE] };
        let judge = Arc::new(Judge { client: judge.create()?, topics });
        Ok(Self { publisher: publisher(&url)?, judge, proxy, server })
    }
}

impl Judge {
    /// Returns the number of messages of a topic after the committed offsets. Blocks.
    fn backlog(&self, topic: &str) -> anyhow::Result<u64> {
        let mut list = TopicPartitionList::new();
        list.add_partition_range(topic, 0, i32::try_from(PARTITIONS)? - 1);
        let committed = self.client.committed_offsets(list, PATIENCE)?;
        let mut backlog = 0;
        for partition in committed.elements() {
            let (low, high) = self.client.fetch_watermarks(topic, partition.partition(), PATIENCE)?;
            let next = match partition.offset() {
                Offset::Offset(next) => next,
                _ => low,
            };
            // The adapter sends its copies in batches, so the end of a retry topic may be low.
            backlog += u64::try_from(high - next).unwrap_or_default();
        }
        Ok(backlog)
    }

    /// Reads all dead letters. Blocks.
    fn letters(&self) -> anyhow::Result<Vec<Letter>> {
        let mut list = TopicPartitionList::new();
        list.add_partition_offset(DEAD, 0, Offset::Beginning)?;
        self.client.assign(&list)?;
        let mut letters = Vec::new();
        let end = Instant::now() + PATIENCE * 4;
        loop {
            match self.client.poll(PATIENCE).context("the broker does not deliver its dead letters")? {
                Ok(message) => letters.push(read(&message)?),
                Err(KafkaError::PartitionEOF(_)) => return Ok(letters),
                Err(error @ KafkaError::MessageConsumptionFatal(_)) => bail!(error),
                Err(error) if Instant::now() > end => bail!("reading the dead letters for {:?}: {error}", PATIENCE * 4),
                // A connection that was cut, which the client restores.
                Err(error) => eprintln!("reading the dead letters: {error}"),
            }
        }
    }
}

/// Returns the headers of a copy, one of them twice.
fn headers(copy: &Copy) -> OwnedHeaders {
    let all = [
        (ID, Some(copy.id.as_bytes())),
        ("copy", Some(copy.name.as_bytes())),
        ("again", Some(b"1")),
        ("trace", Some(&*copy.trace)),
        ("again", Some(b"")),
        ("null", None),
    ];
    let forged: [(&str, Option<&[u8]>); 5] = [
        ("idempotent-topic", Some(b"elsewhere")),
        ("idempotent-partition", Some(b"99")),
        ("idempotent-attempt", Some(b"1000000")),
        ("idempotent-due", Some(b"9999999999999999")),
        ("idempotent-tombstone", Some(b"true")),
    ];
    let forged = forged.into_iter().filter(|_| copy.forged);
    let all = all.into_iter().chain(forged);
    all.fold(OwnedHeaders::new(), |headers, (key, value)| headers.insert(Header { key, value }))
}

/// Returns the partition of a copy. Copies of one message are in several partitions, so that several workers receive them.
fn partition(copy: &Copy) -> i32 {
    let sum = copy.name.bytes().fold(0_u32, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into()));
    i32::try_from(sum % PARTITIONS).unwrap_or_default()
}

#[async_trait]
impl Broker for Kafka {
    fn url(&self) -> String {
        format!("kafka://{}", self.proxy.address())
    }

    async fn publish(&self, copy: &Copy) -> anyhow::Result<bool> {
        let record = FutureRecord::<[u8], [u8]>::to(QUEUE).key(copy.id.as_bytes()).payload(&copy.body);
        let record = record.partition(partition(copy)).headers(headers(copy));
        Ok(self.publisher.send(record, Duration::ZERO).await.is_ok())
    }

    fn letter(&self, copy: &Copy) -> Letter {
        letter(&copy.body, Some(copy.id.as_bytes()), &headers(copy))
    }

    fn left(&self) -> anyhow::Result<Vec<(String, u64)>> {
        let mut left = Vec::new();
        for topic in &self.judge.topics {
            left.push(((*topic).to_owned(), self.judge.backlog(topic)?));
        }
        left.retain(|(_, count)| *count > 0);
        Ok(left)
    }

    async fn letters(&self) -> anyhow::Result<Vec<Letter>> {
        let judge = self.judge.clone();
        tokio::task::spawn_blocking(move || judge.letters()).await?
    }

    fn place(&self) -> (&dyn Server, &Proxy) {
        (&self.server, &self.proxy)
    }
}

fn read(message: &BorrowedMessage<'_>) -> anyhow::Result<Letter> {
    let headers = message.headers().context("a dead letter without headers")?.detach();
    let key = headers.iter().filter(|header| header.key == RECORD_KEY).find_map(|header| header.value);
    Ok(letter(message.payload().context("a dead letter without a value")?, key, &headers))
}

/// Returns the letter with the headers in their order, except those of the adapter.
fn letter(body: &[u8], key: Option<&[u8]>, headers: &OwnedHeaders) -> Letter {
    let shown = |value: Option<&[u8]>| value.map(|value| value.escape_ascii().to_string());
    let is_kept = |header: &Header<'_, &[u8]>| header.key == ID || !header.key.starts_with(MARK);
    let mut all: Vec<_> = headers.iter().filter(is_kept).map(|header| (header.key, shown(header.value))).collect();
    let copy = all.iter().find(|(name, _)| *name == "copy").and_then(|(_, value)| value.clone());
    // The adapter writes its own headers after the others.
    all.sort_by_key(|(name, _)| *name == ID);
    Letter { copy, content: format!("{} key={:?} {all:?}", body.escape_ascii(), shown(key)) }
}
