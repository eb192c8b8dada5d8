//! The clients that read and write the dead letters.
use std::collections::HashSet;
use std::time::Duration;

use idempotent_mq::SourceError;
use rdkafka::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer, StreamConsumer};
use rdkafka::error::KafkaError;
use rdkafka::message::{BorrowedMessage, Message};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use tokio::time::timeout;

use crate::error::{copy_failure, failure, refused, transient};
use crate::message::{Copy, Letter};
use crate::options::{self, Server};
use crate::place::PartitionName;
use crate::producer::{Producer, QuietContext};
use crate::topics::{exists, no_topic};

/// The maximum time without an event while the letters are read.
const SILENCE: Duration = Duration::from_secs(10);
/// The maximum time of the client's own thread to change the positions.
const SEEK: Duration = Duration::from_secs(1);
pub(crate) const PUTTING_BACK: &str = "putting a dead letter back";
pub(crate) const READING: &str = "reading the dead letters";

/// Returns the configuration of a client that reads without a group.
pub(crate) fn config(server: &Server) -> Result<ClientConfig, SourceError> {
    let mut config = options::client(server)?;
    // The client reads without a group only if a name is set. It neither joins nor commits.
    config.set("group.id", "idempotent-dead-letters").set("enable.auto.commit", "false");
    config.set("enable.partition.eof", "true").set("auto.offset.reset", "earliest");
    Ok(config)
}

/// Returns the message that puts a letter back, from the record that contains its body. Blocks the thread.
pub(crate) fn original(
    config: &ClientConfig,
    letter: &Letter,
    place: &PartitionName,
    offset: i64,
) -> Result<Copy, SourceError> {
    let failed = |error| failure(PUTTING_BACK, error);
    let consumer: BaseConsumer = config.create().map_err(failed)?;
    let (first, end) = consumer.fetch_watermarks(&place.topic, place.number, SILENCE).map_err(failed)?;
    let mut list = TopicPartitionList::new();
    list.add_partition_offset(&place.topic, place.number, Offset::Offset(offset)).map_err(failed)?;
    consumer.assign(&list).map_err(failed)?;
    let record = (first..end).contains(&offset).then(|| consumer.poll(SILENCE).ok_or_else(|| silent(PUTTING_BACK)));
    match record.transpose()? {
        Some(Ok(record)) if record.offset() == offset => Ok(letter.put_record_back(&record)),
        Some(Err(error)) if !matches!(error, KafkaError::PartitionEOF(_)) => Err(failed(error)),
        _ => {
            let text = "the letter lacks its body, and the log no longer contains the message; restore it, or remove the letter";
            Err(refused(PUTTING_BACK, text))
        }
    }
}

fn silent(doing: &str) -> SourceError {
    transient(doing, std::io::Error::other("no answer within 10 s"))
}

/// The clients of an open handle.
pub(crate) struct Opened {
    consumer: Option<StreamConsumer<QuietContext>>,
    producer: Producer,
    dead: String,
    partitions: Vec<i32>,
    /// True once the consumer reads the partitions.
    is_assigned: bool,
}

impl Opened {
    /// Connects. Blocks the thread.
    pub(crate) fn new(server: &Server, dead: &str) -> Result<Self, SourceError> {
        let config = config(server)?;
        let created = config.create_with_context(QuietContext::default());
        let consumer: StreamConsumer<QuietContext> =
            created.map_err(|error| failure("configuring the client", error))?;
        if !exists(&consumer, dead, &config)? {
            return Err(no_topic(dead));
        }
        let metadata = consumer.fetch_metadata(Some(dead), SILENCE).map_err(|error| failure(READING, error))?;
        let topic = metadata.topics().first();
        let partitions = topic.map(|topic| topic.partitions().iter().map(|partition| partition.id()).collect());
        Ok(Self {
            consumer: Some(consumer),
            producer: Producer::new(server)?,
            dead: dead.to_owned(),
            partitions: partitions.unwrap_or_default(),
            is_assigned: false,
        })
    }

    /// Starts to read all partitions from their beginning, and returns them. Blocks the thread.
    ///
    /// The partitions are assigned once. If the client ends shortly after a second assignment, it aborts the process.
    pub(crate) fn rewind(&mut self) -> Result<HashSet<i32>, SourceError> {
        let mut list = TopicPartitionList::new();
        for partition in &self.partitions {
            let added = list.add_partition_offset(&self.dead, *partition, Offset::Beginning);
            added.map_err(|error| failure(READING, error))?;
        }
        let Some(consumer) = &self.consumer else { return Ok(HashSet::new()) };
        if self.is_assigned {
            let sought = consumer.seek_partitions(list, SEEK).map_err(|error| failure(READING, error))?;
            for partition in sought.elements() {
                partition.error().map_err(|error| failure(READING, error))?;
            }
        } else {
            consumer.assign(&list).map_err(|error| failure(READING, error))?;
            self.is_assigned = true;
        }
        Ok(self.partitions.iter().copied().collect())
    }

    /// Returns the next record, or `None` at the end of a partition.
    pub(crate) async fn next(&self, open: &mut HashSet<i32>) -> Result<Option<BorrowedMessage<'_>>, SourceError> {
        // The consumer is only missing while it is dropped.
        let consumer = self.consumer.as_ref().ok_or_else(|| silent(READING))?;
        match timeout(SILENCE, consumer.recv()).await.map_err(|_| silent(READING))? {
            Ok(message) => Ok(Some(message)),
            Err(KafkaError::PartitionEOF(partition)) => {
                open.remove(&partition);
                Ok(None)
            }
            Err(error) => Err(failure(READING, error)),
        }
    }

    pub(crate) async fn produce(&self, topic: &str, copy: Copy, doing: &str) -> Result<(), SourceError> {
        let sent = self.producer.confirmed(topic, copy).await;
        sent.map(drop).map_err(|error| copy_failure(doing, error))
    }
}

/// Ends the client on another thread, because the end blocks.
impl Drop for Opened {
    fn drop(&mut self) {
        let consumer = self.consumer.take();
        std::thread::spawn(move || drop(consumer));
    }
}

impl std::fmt::Debug for Opened {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Opened").field("dead", &self.dead).finish_non_exhaustive()
    }
}
