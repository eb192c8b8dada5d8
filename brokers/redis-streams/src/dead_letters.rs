//! Listing, redriving and removing the dead letters of a stream.
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use idempotent_mq::{LetterBox, SourceError, SourceErrorKind, StoredLetter};
use redis::Value;

use crate::carrier::{FieldMapping, Fields, add, decode_letter, fits_into_script};
use crate::connection::{Connection, Server, client};
use crate::reply;
use crate::scripts::BACK;

/// The dead letters of a stream, for [`Redrive`](idempotent_mq::Redrive).
///
/// Each letter is moved to the end of the stream as a new entry with all its fields, by one script call. An entry with
/// more than 3,900 fields takes several steps: if the process dies in between, or another process redrives the same
/// entry, the entry is put back twice.
///
/// All groups of the stream receive the entry again. Groups that have handled the message recognize it if the key comes
/// from the message. If the entry id is the message id, the entry is a new message.
///
/// ```no_run
/// use idempotent_mq::Redrive;
/// use idempotent_redis_streams::StreamsDeadLetters;
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let mut letters = StreamsDeadLetters::new("redis://127.0.0.1", "orders")?;
/// let redriven = Redrive::new().limit(10).run(&mut letters).await;
/// println!("{} put back", redriven.put_back);
/// redriven.failed.map_or(Ok(()), |failed| Err(failed.into()))
/// # }
/// ```
#[derive(Debug)]
#[must_use]
pub struct StreamsDeadLetters {
    connection: Connection,
    stream: Arc<str>,
    /// Mapping for the stream of the dead letters.
    layout: FieldMapping,
    /// The entry that was read last, after which the search continues.
    at: Option<String>,
    /// The newest entry at the count, at which the listing ends.
    end: Option<String>,
    listed: Option<ListedEntry>,
}

/// An entry that was read.
#[derive(Debug)]
pub struct ListedEntry {
    id: String,
    /// The fields, if a script cannot move them.
    large: Option<Fields>,
}

impl StreamsDeadLetters {
    /// Creates a handle to the dead letters in `STREAM:dead`. The URL has the same form as for
    /// [`StreamsSource::builder`](crate::StreamsSource::builder).
    ///
    /// # Errors
    /// `Fatal` if the URL is invalid.
    pub fn new(server: impl Into<Server>, stream: impl Into<Arc<str>>) -> Result<Self, SourceError> {
        let client = client(server.into())?;
        let stream = stream.into();
        let dead = format!("{stream}:dead").into();
        let layout = FieldMapping { stream: dead, body: "body".to_owned(), id: None, business_key: None };
        Ok(Self {
            connection: Connection::new(client, Duration::ZERO),
            stream,
            layout,
            at: None,
            end: None,
            listed: None,
        })
    }

    /// Sets the stream of the dead letters, as in
    /// [`StreamsSourceBuilder::dead_letters`](crate::StreamsSourceBuilder::dead_letters).
    ///
    /// # Default
    /// `STREAM:dead`
    pub fn lying_in(mut self, stream: impl Into<Arc<str>>) -> Self {
        self.layout.stream = stream.into();
        self
    }

    /// Sets the field that is returned as the body.
    ///
    /// # Default
    /// `body`
    pub fn body_field(mut self, name: impl Into<String>) -> Self {
        self.layout.body = name.into();
        self
    }
}

const COUNTING: &str = "counting the dead letters";
const READING: &str = "reading the dead letters";
const REMOVING: &str = "removing a dead letter";
const PUTTING_BACK: &str = "putting an entry back";

#[async_trait]
impl LetterBox for StreamsDeadLetters {
    type Letter = ListedEntry;

    fn listed(&mut self) -> &mut Option<ListedEntry> {
        &mut self.listed
    }

    async fn number(&mut self) -> Result<u64, SourceError> {
        let mut rest = redis::cmd("XLEN");
        rest.arg(&*self.layout.stream);
        let counted = self.connection.query(COUNTING, &rest).await?;
        let Value::Int(all) = counted else { return Err(fatal("XLEN: unexpected reply")) };
        let mut newest = redis::cmd("XREVRANGE");
        newest.arg(&*self.layout.stream).arg("+").arg("-").arg("COUNT").arg(1);
        let newest = self.connection.query("reading the newest dead letter", &newest).await?;
        let newest = reply::parse_range(newest)?.pop();
        self.end = Some(newest.map_or_else(|| "0-0".to_owned(), |entry| entry.id));
        Ok(u64::try_from(all).unwrap_or_default())
    }

    async fn fetch(&mut self) -> Result<Option<(StoredLetter, ListedEntry)>, SourceError> {
        let from = self.at.as_ref().map_or_else(|| "-".to_owned(), |at| format!("({at}"));
        let mut range = redis::cmd("XRANGE");
        range.arg(&*self.layout.stream).arg(from).arg(self.end.as_deref().unwrap_or("+")).arg("COUNT").arg(1);
        let found = self.connection.query(READING, &range).await?;
        let Some(entry) = reply::parse_range(found)?.pop() else { return Ok(None) };
        let mut delivery = self.layout.delivery(&entry);
        delivery.delivered = None;
        let stored = StoredLetter::at(&entry.id, delivery, decode_letter(&entry.fields));
        self.at = Some(entry.id.clone());
        let large = Some(entry.fields).filter(|fields| !fits_into_script(fields));
        Ok(Some((stored, ListedEntry { id: entry.id, large })))
    }

    async fn revive(&mut self, ListedEntry { id, large }: &ListedEntry) -> Result<bool, SourceError> {
        let moved = match large {
            Some(fields) => self.move_large(id, fields).await?,
            None => {
                let mut back = BACK.key(&*self.layout.stream);
                back.key(&*self.stream).arg(id);
                self.connection.run_script(PUTTING_BACK, &back).await?
            }
        };
        match moved {
            Value::Int(there @ 0..=1) => Ok(there == 1),
            Value::Int(2) => Err(fatal("the stream for the dead letters does not exist; create it with its group")),
            _ => Err(fatal("putting an entry back: unexpected reply")),
        }
    }

    async fn remove(&mut self, ListedEntry { id, .. }: &ListedEntry) -> Result<bool, SourceError> {
        let mut remove = redis::cmd("XDEL");
        remove.arg(&*self.layout.stream).arg(id);
        match self.connection.query(REMOVING, &remove).await? {
            Value::Int(removed @ 0..=1) => Ok(removed == 1),
            _ => Err(fatal("XDEL: unexpected reply")),
        }
    }
}

impl StreamsDeadLetters {
    /// Moves an entry with too many fields for a script, in three steps. Returns the same values as the script.
    ///
    /// If the process dies before the last step, or another process moves the same entry, the entry is put back twice.
    async fn move_large(&self, at: &str, fields: &Fields) -> Result<Value, SourceError> {
        let mut there = redis::cmd("XRANGE");
        there.arg(&*self.layout.stream).arg(at).arg(at);
        if reply::parse_range(self.connection.query(PUTTING_BACK, &there).await?)?.is_empty() {
            return Ok(Value::Int(0));
        }
        if self.connection.query(PUTTING_BACK, &add(&self.stream, true, fields)).await? == Value::Nil {
            return Ok(Value::Int(2));
        }
        let mut remove = redis::cmd("XDEL");
        remove.arg(&*self.layout.stream).arg(at);
        self.connection.query(PUTTING_BACK, &remove).await?;
        Ok(Value::Int(1))
    }
}

fn fatal(text: &str) -> SourceError {
    SourceError::new(SourceErrorKind::Fatal, text)
}
