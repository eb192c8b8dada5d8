//! Listing, redriving and removing the dead letters of a topic.
use std::collections::{BTreeSet, HashMap, HashSet};
use std::time::Duration;

use async_trait::async_trait;
use idempotent_mq::{DeadLetters, SourceError, StoredLetter};
use rdkafka::consumer::{Consumer, StreamConsumer};
use rdkafka::error::KafkaError;
use rdkafka::message::{BorrowedMessage, Message};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use crate::KafkaOptions;
use crate::error::{copy_failure, failure, fatal, transient};
use crate::message::{Copy, Letter, removal};
use crate::producer::{Producer, QuietContext};
use crate::topics::{exists, no_topic};

/// The dead letters of a topic, for [`Redrive`](idempotent_mq::Redrive).
///
/// A topic cannot delete one record. A letter is removed by a record with its key and without a value, as in every compacted topic:
/// this type no longer lists the letter, and the broker deletes both records at its next compaction. Listing therefore reads the whole
/// topic.
///
/// Each letter is produced to its original topic and partition, and then removed. If the process dies in between, or two processes
/// redrive the same letter, the message is a duplicate with the same id. All groups of the topic receive the message again.
///
/// ```no_run
/// use idempotent_kafka::KafkaDeadLetters;
/// use idempotent_mq::Redrive;
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let mut letters = KafkaDeadLetters::new("kafka://127.0.0.1", "orders");
/// let redriven = Redrive::new().limit(10).run(&mut letters).await;
/// println!("{} put back", redriven.put_back);
/// redriven.failed.map_or(Ok(()), |failed| Err(failed.into()))
/// # }
/// ```
#[derive(Debug)]
#[must_use]
pub struct KafkaDeadLetters {
    server: KafkaOptions,
    dead: String,
    opened: Option<Opened>,
    /// The letters that the listing still returns, or `None` before the first count.
    listed: Option<BTreeSet<Offsets>>,
    /// The partitions whose end the listing has not reached.
    open: HashSet<i32>,
    current: Option<Letter>,
}

/// A partition and an offset.
type Offsets = (i32, i64);

/// The identity of a letter: its record key, or its position if it has none.
#[derive(Eq, Hash, PartialEq)]
enum LetterName {
    Key(Vec<u8>),
    Position(Offsets),
}

/// The maximum time without an event while the letters are read.
const SILENCE: Duration = Duration::from_secs(10);
/// The maximum time of the client's own thread to change the positions.
const SEEK: Duration = Duration::from_secs(1);
const PUTTING_BACK: &str = "putting a dead letter back";
const REMOVING: &str = "removing a dead letter";
const READING: &str = "reading the dead letters";

impl KafkaDeadLetters {
    /// Creates a handle to the dead letters in `TOPIC-dead`.
    pub fn new(server: impl Into<KafkaOptions>, topic: impl AsRef<str>) -> Self {
        Self {
            server: server.into(),
            dead: format!("{}-dead", topic.as_ref()),
            opened: None,
            listed: None,
            open: HashSet::new(),
            current: None,
        }
    }

    /// Sets the topic of the dead letters, as in [`KafkaSourceBuilder::dead_letters`](crate::KafkaSourceBuilder::dead_letters).
    ///
    /// # Default
    /// `TOPIC-dead`
    pub fn stored_in(mut self, topic: impl Into<String>) -> Self {
        self.dead = topic.into();
        self
    }

    async fn open(&mut self) -> Result<&mut Opened, SourceError> {
        let opened = self.take().await?;
        Ok(self.opened.insert(opened))
    }

    /// Takes the clients out of this handle. Connects if there are none.
    async fn take(&mut self) -> Result<Opened, SourceError> {
        if let Some(opened) = self.opened.take() {
            return Ok(opened);
        }
        let (server, dead) = (self.server.clone(), self.dead.clone());
        let opened = spawn_blocking(move || Opened::new(&server, &dead)).await;
        opened.map_err(|error| transient("connecting", error))?
    }

    /// Starts to read all partitions from their beginning.
    async fn rewind(&mut self) -> Result<(), SourceError> {
        let mut opened = self.take().await?;
        let rewound = spawn_blocking(move || {
            let open = opened.rewind();
            (opened, open)
        });
        let (opened, open) = rewound.await.map_err(|error| transient(READING, error))?;
        self.opened = Some(opened);
        self.open = open?;
        Ok(())
    }

    /// Returns the letter that `next` returned last.
    fn current(&self, doing: &str) -> Result<&Letter, SourceError> {
        self.current.as_ref().ok_or_else(|| fatal(doing, "no dead letter was read; call `next` first"))
    }

    /// Writes the record that removes the current letter.
    async fn remove(&mut self) -> Result<(), SourceError> {
        let key = self.current(REMOVING)?.key.clone().ok_or_else(|| {
            fatal(
                REMOVING,
                "another program wrote the letter without a record key; delete it by `kafka-delete-records`",
            )
        })?;
        let dead = self.dead.clone();
        self.open().await?.produce(&dead, removal(key), REMOVING).await?;
        self.current = None;
        Ok(())
    }
}

#[async_trait]
impl DeadLetters for KafkaDeadLetters {
    async fn count(&mut self) -> Result<u64, SourceError> {
        // A failure or a drop in the middle leaves no listing.
        self.listed = None;
        let mut letters = HashMap::new();
        self.rewind().await?;
        let mut open = std::mem::take(&mut self.open);
        let opened = self.open().await?;
        while !open.is_empty() {
            let Some(message) = opened.next(&mut open).await? else { continue };
            let at = (message.partition(), message.offset());
            let name = message.key().map_or(LetterName::Position(at), |key| LetterName::Key(key.to_vec()));
            match message.payload() {
                Some(_) => letters.insert(name, at),
                None => letters.remove(&name),
            };
        }
        let listed: BTreeSet<_> = letters.into_values().collect();
        if !listed.is_empty() {
            self.rewind().await?;
        }
        Ok(self.listed.insert(listed).len() as u64)
    }

    async fn next(&mut self) -> Result<Option<StoredLetter>, SourceError> {
        if self.listed.is_none() {
            self.count().await?;
        }
        while self.listed.as_ref().is_some_and(|listed| !listed.is_empty()) && !self.open.is_empty() {
            let mut open = self.open.clone();
            let opened = self.open().await?;
            let letter = opened.next(&mut open).await?.map(|message| {
                let at = (message.partition(), message.offset());
                (at, Letter::read(&message))
            });
            self.open = open;
            if let Some((at, letter)) = letter
                && self.listed.as_mut().is_some_and(|listed| listed.remove(&at))
            {
                let (partition, offset) = at;
                let place = format_args!("{partition}/{offset}");
                let read = StoredLetter::at(place, letter.delivery.clone(), letter.letter.clone());
                self.current = Some(letter);
                return Ok(Some(read));
            }
        }
        Ok(None)
    }

    async fn put_back(&mut self) -> Result<bool, SourceError> {
        let letter = self.current(PUTTING_BACK)?;
        let Some((topic, copy)) = letter.put_back() else {
            return Err(fatal(
                PUTTING_BACK,
                "another program wrote the letter, and its topic is unknown; produce the message yourself",
            ));
        };
        let topic = topic.to_owned();
        self.open().await?.produce(&topic, copy, PUTTING_BACK).await?;
        self.remove().await?;
        Ok(true)
    }

    async fn discard(&mut self) -> Result<bool, SourceError> {
        self.remove().await?;
        Ok(true)
    }

    async fn close(&mut self) {
        (self.opened, self.listed) = (None, None);
    }
}

/// The clients of an open handle.
struct Opened {
    consumer: Option<StreamConsumer<QuietContext>>,
    producer: Producer,
    dead: String,
    partitions: Vec<i32>,
    /// True once the consumer reads the partitions.
    is_assigned: bool,
}

impl Opened {
    /// Connects. Blocks the thread.
    fn new(server: &KafkaOptions, dead: &str) -> Result<Self, SourceError> {
        let mut config = server.client()?;
        // The client reads without a group only if a name is set. It neither joins nor commits.
        config.set("group.id", "idempotent-dead-letters").set("enable.auto.commit", "false");
        config.set("enable.partition.eof", "true").set("auto.offset.reset", "earliest");
        let created = config.create_with_context(QuietContext);
        let consumer: StreamConsumer<QuietContext> =
            created.map_err(|error| failure("configuring the client", error))?;
        if !exists(&consumer, dead)? {
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
    fn rewind(&mut self) -> Result<HashSet<i32>, SourceError> {
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
    async fn next(&self, open: &mut HashSet<i32>) -> Result<Option<BorrowedMessage<'_>>, SourceError> {
        let silent = || transient(READING, std::io::Error::other("no answer within 10 s"));
        // The consumer is only missing while it is dropped.
        let consumer = self.consumer.as_ref().ok_or_else(silent)?;
        match timeout(SILENCE, consumer.recv()).await.map_err(|_| silent())? {
            Ok(message) => Ok(Some(message)),
            Err(KafkaError::PartitionEOF(partition)) => {
                open.remove(&partition);
                Ok(None)
            }
            Err(error) => Err(failure(READING, error)),
        }
    }

    async fn produce(&self, topic: &str, copy: Copy, doing: &str) -> Result<(), SourceError> {
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
