//! Listing, redriving and removing the dead letters of a stream.
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use idempotent_mq::{DeadLetters, SourceError, SourceErrorKind, StoredLetter, answer_within};
use redis::Value;

use crate::connection::{Connection, client};
use crate::error::failure;
use crate::headers::{FieldMapping, Fields, add, decode_letter, fits_into_script};
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
    /// The last listed entry.
    at: Option<String>,
    /// The newest entry at the count, at which the listing ends.
    end: Option<String>,
    /// Fields of that entry, if a script cannot move them.
    large: Option<Fields>,
    /// True if no letter is listed that could be put back or removed.
    done: bool,
}

impl StreamsDeadLetters {
    /// Creates a handle to the dead letters in `STREAM:dead`. The URL has the same form as for
    /// [`StreamsSource::builder`](crate::StreamsSource::builder).
    ///
    /// # Errors
    /// `Fatal` if the URL is invalid.
    pub fn new(url: impl AsRef<str>, stream: impl Into<Arc<str>>) -> Result<Self, SourceError> {
        let client = client(url.as_ref()).map_err(|error| failure("parsing the URL", error))?;
        let stream = stream.into();
        let dead = format!("{stream}:dead").into();
        let layout = FieldMapping { stream: dead, body: "body".to_owned(), id: None, business_key: None };
        Ok(Self {
            connection: Connection::new(client, Duration::ZERO),
            stream,
            layout,
            at: None,
            end: None,
            large: None,
            done: true,
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

#[async_trait]
impl DeadLetters for StreamsDeadLetters {
    async fn count(&mut self) -> Result<u64, SourceError> {
        answer_within(COUNTING, self.count_all()).await
    }

    async fn next(&mut self) -> Result<Option<StoredLetter>, SourceError> {
        answer_within(READING, self.read_next()).await
    }

    async fn put_back(&mut self) -> Result<bool, SourceError> {
        answer_within(PUTTING_BACK, self.put_back_listed()).await
    }

    async fn discard(&mut self) -> Result<bool, SourceError> {
        answer_within(REMOVING, self.discard_listed()).await
    }
}

const COUNTING: &str = "counting the dead letters";
const READING: &str = "reading the dead letters";
const REMOVING: &str = "removing a dead letter";
const PUTTING_BACK: &str = "putting an entry back";

impl StreamsDeadLetters {
    async fn count_all(&mut self) -> Result<u64, SourceError> {
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

    async fn read_next(&mut self) -> Result<Option<StoredLetter>, SourceError> {
        let from = self.at.as_ref().map_or_else(|| "-".to_owned(), |at| format!("({at}"));
        let mut range = redis::cmd("XRANGE");
        range.arg(&*self.layout.stream).arg(from).arg(self.end.as_deref().unwrap_or("+")).arg("COUNT").arg(1);
        let found = self.connection.query(READING, &range).await?;
        let Some(entry) = reply::parse_range(found)?.pop() else { return Ok(None) };
        let mut delivery = self.layout.delivery(&entry);
        delivery.delivered = None;
        let left = decode_letter(&entry.fields);
        let letter = StoredLetter::at(&entry.id, delivery, left);
        (self.at, self.done) = (Some(entry.id), false);
        self.large = Some(entry.fields).filter(|fields| !fits_into_script(fields));
        Ok(Some(letter))
    }

    async fn put_back_listed(&mut self) -> Result<bool, SourceError> {
        let at = self.listed()?;
        let moved = match &self.large {
            Some(fields) => self.move_large(at, fields).await?,
            None => {
                let mut back = BACK.key(&*self.layout.stream);
                back.key(&*self.stream).arg(at);
                self.connection.run_script(PUTTING_BACK, &back).await?
            }
        };
        match moved {
            Value::Int(there @ 0..=1) => {
                self.done = true;
                Ok(there == 1)
            }
            Value::Int(2) => Err(fatal("the stream for the dead letters does not exist; create it with its group")),
            _ => Err(fatal("putting an entry back: unexpected reply")),
        }
    }

    async fn discard_listed(&mut self) -> Result<bool, SourceError> {
        let mut remove = redis::cmd("XDEL");
        remove.arg(&*self.layout.stream).arg(self.listed()?);
        match self.connection.query(REMOVING, &remove).await? {
            Value::Int(removed @ 0..=1) => {
                self.done = true;
                Ok(removed == 1)
            }
            _ => Err(fatal("XDEL: unexpected reply")),
        }
    }
}

impl StreamsDeadLetters {
    /// Returns the id of the entry that `next` returned last.
    fn listed(&self) -> Result<&String, SourceError> {
        let nothing = || fatal("no dead letter was read; call `next` first");
        self.at.as_ref().filter(|_| !self.done).ok_or_else(nothing)
    }

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
