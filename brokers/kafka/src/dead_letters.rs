//! Listing, redriving and removing the dead letters of a topic.
use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use idempotent_mq::{LetterBox, SourceError, StoredLetter};
use rdkafka::message::Message;
use tokio::task::spawn_blocking;

use crate::carrier::HeaderWriter;
use crate::error::{is_partition_missing, refused, transient};
use crate::letter_clients::{Opened, PUTTING_BACK, READING, config, original};
use crate::message::{Copy, Letter, removal};
use crate::options::Server;

/// The dead letters of a topic, for [`Redrive`](idempotent_mq::Redrive).
///
/// A topic cannot delete one record. A letter is removed by a record with its key and without a value, as in every compacted topic:
/// this type no longer lists the letter, and the broker deletes both records at its next compaction. Listing therefore reads the whole
/// topic.
///
/// Each letter is produced to the topic of this handle and its original partition, and then removed. If the process dies in between, or two processes
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
    server: Server,
    topic: String,
    dead: String,
    /// The topic that the operator names.
    to: Option<String>,
    leaves_out_unreadable: bool,
    opened: Option<Opened>,
    /// The letters that the listing still returns, or `None` before the first count.
    listed: Option<BTreeSet<Offsets>>,
    /// The partitions whose end the listing has not reached.
    open: HashSet<i32>,
    listed_last: Option<Arc<Letter>>,
}

/// A partition and an offset.
type Offsets = (i32, i64);

/// The identity of a letter: its record key, or its position if it has none.
#[derive(Eq, Hash, PartialEq)]
enum LetterName {
    Key(Vec<u8>),
    Position(Offsets),
}

const REMOVING: &str = "removing a dead letter";

impl KafkaDeadLetters {
    /// Creates a handle to the dead letters in `TOPIC-dead`.
    pub fn new(server: impl Into<Server>, topic: impl AsRef<str>) -> Self {
        Self {
            server: server.into(),
            topic: topic.as_ref().to_owned(),
            dead: format!("{}-dead", topic.as_ref()),
            to: None,
            leaves_out_unreadable: false,
            opened: None,
            listed: None,
            open: HashSet::new(),
            listed_last: None,
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

    /// Puts all letters back to this topic, whatever topic they name. Their record keys choose the partitions.
    ///
    /// # Default
    /// The topic of this handle. A letter of another topic or of another program is
    /// [`Refused`](idempotent_mq::SourceErrorKind::Refused)
    pub fn putting_back_to(mut self, topic: impl Into<String>) -> Self {
        self.to = Some(topic.into());
        self
    }

    /// Puts letters whose headers the client [cannot read](crate#headers-that-the-client-cannot-read) back without these headers, so
    /// that a handler runs.
    ///
    /// # Default
    /// A letter is put back with all its headers, and consumers of this adapter dead-letter it again
    pub fn without_unreadable_headers(mut self) -> Self {
        self.leaves_out_unreadable = true;
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

    /// Writes the record with this key that removes a letter.
    async fn remove_by(&mut self, key: Vec<u8>) -> Result<(), SourceError> {
        let dead = self.dead.clone();
        self.open().await?.produce(&dead, removal(key), REMOVING).await
    }

    /// Returns the topic to which a letter goes, and whether it is the topic of the message.
    fn target(&self, letter: &Letter) -> Result<(String, bool), SourceError> {
        match (&self.to, &letter.topic) {
            (Some(to), topic) => Ok((to.clone(), topic.as_ref() == Some(to))),
            (None, Some(topic)) if *topic == self.topic => Ok((topic.clone(), true)),
            (None, Some(topic)) => {
                let text = format!(
                    "the letter is of the topic `{topic}`; open the dead letters of that topic, or name a topic by `putting_back_to`"
                );
                Err(refused(PUTTING_BACK, &text))
            }
            (None, None) => {
                let text =
                    "another program wrote the letter, and its topic is unknown; name a topic by `putting_back_to`";
                Err(refused(PUTTING_BACK, text))
            }
        }
    }

    /// Returns the message that puts a letter back.
    async fn revived(&self, letter: Arc<Letter>) -> Result<Copy, SourceError> {
        let Some((place, offset)) = letter.record.clone() else {
            let drops = self.leaves_out_unreadable && letter.is_unreadable;
            return Ok(letter.put_back(if drops { HeaderWriter::default() } else { letter.produced() }));
        };
        if *place.topic != *self.topic {
            // The data of a letter must not choose what an operator reads.
            let (topic, number) = (place.topic, place.number);
            let text = format!(
                "the letter lacks its body, which is `{topic}/{number}/{offset}`; produce the message yourself"
            );
            return Err(refused(PUTTING_BACK, &text));
        }
        let config = config(&self.server)?;
        let reading = spawn_blocking(move || original(&config, &letter, &place, offset));
        reading.await.map_err(|error| transient(PUTTING_BACK, error))?
    }
}

#[async_trait]
impl LetterBox for KafkaDeadLetters {
    type Letter = Arc<Letter>;

    fn listed(&mut self) -> &mut Option<Arc<Letter>> {
        &mut self.listed_last
    }

    /// Returns `None`: each request has a time limit, and their number depends on the number of letters.
    fn time_limit(&self) -> Option<Duration> {
        None
    }

    async fn number(&mut self) -> Result<u64, SourceError> {
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

    async fn fetch(&mut self) -> Result<Option<(StoredLetter, Arc<Letter>)>, SourceError> {
        if self.listed.is_none() {
            self.number().await?;
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
                return Ok(Some((read, Arc::new(letter))));
            }
        }
        Ok(None)
    }

    async fn revive(&mut self, letter: &Arc<Letter>) -> Result<bool, SourceError> {
        // A letter that cannot be removed would be put back again and again.
        let key = key(letter)?;
        let (topic, is_origin) = self.target(letter)?;
        let mut copy = self.revived(letter.clone()).await?;
        let opened = self.open().await?;
        if !is_origin {
            copy.partition = None;
        }
        match opened.produce(&topic, copy.clone(), PUTTING_BACK).await {
            Err(error) if is_partition_missing(&error) => {
                opened.produce(&topic, Copy { partition: None, ..copy }, PUTTING_BACK).await?;
            }
            produced => produced?,
        }
        self.remove_by(key).await?;
        Ok(true)
    }

    async fn remove(&mut self, letter: &Arc<Letter>) -> Result<bool, SourceError> {
        self.remove_by(key(letter)?).await?;
        Ok(true)
    }

    async fn leave(&mut self) {
        (self.opened, self.listed) = (None, None);
    }
}

/// Returns the record key of a letter, by which it is removed.
fn key(letter: &Letter) -> Result<Vec<u8>, SourceError> {
    let text = "another program wrote the letter without a record key; delete it by `kafka-delete-records`";
    letter.key.clone().ok_or_else(|| refused(REMOVING, text))
}
