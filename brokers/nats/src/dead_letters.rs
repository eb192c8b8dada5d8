//! Listing, redriving and removing the dead letters of a stream.
use async_nats::jetstream::message::{PublishMessage, StreamMessage};
use async_nats::jetstream::stream::{DeleteMessageErrorKind, DirectGetErrorKind, Stream};
use async_nats::jetstream::{self, ErrorCode};
use async_trait::async_trait;
use idempotent_mq::{DeadLetters, SourceError, StoredLetter};

use crate::NatsOptions;
use crate::connection::Connection;
use crate::declare::existing_stream;
use crate::error::{copy_failure, fatal, jetstream_failure, transient};
use crate::headers::{HeaderWriter, delivery, letter, original_subject, without_control};
use crate::number::MessageNumber;
use crate::publisher::confirmed;

/// The dead letters of a stream, for [`Redrive`](idempotent_mq::Redrive).
///
/// Each letter is published to its original subject, and then removed. If the process dies in between, or two processes redrive
/// the same letter, the stream drops the second copy within its duplicate window (2 min by default). A later copy is a duplicate
/// with the same id. All consumers of the subject receive the message again.
///
/// ```no_run
/// use idempotent_mq::Redrive;
/// use idempotent_nats::JetStreamDeadLetters;
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let mut letters = JetStreamDeadLetters::new("nats://127.0.0.1", "ORDERS");
/// let redriven = Redrive::new().limit(10).run(&mut letters).await;
/// println!("{} put back", redriven.put_back);
/// redriven.failed.map_or(Ok(()), |failed| Err(failed.into()))
/// # }
/// ```
#[derive(Debug)]
#[must_use]
pub struct JetStreamDeadLetters {
    server: NatsOptions,
    dead: String,
    opened: Option<(Connection, Stream)>,
    /// The sequence number at which the search for the next letter begins.
    from: u64,
    /// The newest letter at the count, at which the listing ends.
    end: u64,
    listed: Option<StreamMessage>,
}

const PUTTING_BACK: &str = "putting a dead letter back";

impl JetStreamDeadLetters {
    /// Creates a handle to the dead letters in `STREAM-dead`.
    pub fn new(server: impl Into<NatsOptions>, stream: impl AsRef<str>) -> Self {
        Self {
            server: server.into(),
            dead: format!("{}-dead", stream.as_ref()),
            opened: None,
            from: 1,
            end: u64::MAX,
            listed: None,
        }
    }

    /// Sets the stream of the dead letters, as in
    /// [`JetStreamSourceBuilder::dead_letters`](crate::JetStreamSourceBuilder::dead_letters).
    ///
    /// # Default
    /// `STREAM-dead`
    pub fn stored_in(mut self, stream: impl Into<String>) -> Self {
        self.dead = stream.into();
        self
    }

    async fn open(&mut self) -> Result<(Connection, Stream), SourceError> {
        if let Some((connection, stream)) = &self.opened {
            return Ok((connection.clone(), stream.clone()));
        }
        let connection = Connection::open(&self.server).await?;
        let stream = existing_stream(&connection, &self.dead).await?;
        if !stream.cached_info().config.allow_direct {
            return Err(fatal(
                "opening the dead letters",
                "their stream permits no direct access; set `allow_direct` by `nats stream edit --allow-direct`",
            ));
        }
        self.opened = Some((connection.clone(), stream.clone()));
        Ok((connection, stream))
    }

    /// Returns the id of the message that is put back for a letter.
    fn copy_id(&self, letter: &StreamMessage) -> String {
        let number = MessageNumber { sequence: letter.sequence, stored_at: letter.time.unix_timestamp_nanos() };
        format!("{}/{number}", self.dead)
    }

    /// Returns the letter that `next` returned last.
    fn listed(&self) -> Result<StreamMessage, SourceError> {
        self.listed.clone().ok_or_else(|| fatal(PUTTING_BACK, "no dead letter was read; call `next` first"))
    }

    /// Removes a letter. Returns false if it is gone.
    async fn remove(&mut self, sequence: u64) -> Result<bool, SourceError> {
        let (_, stream) = self.open().await?;
        let removed = match stream.delete_message(sequence).await {
            Ok(removed) => removed,
            Err(error) => match error.kind() {
                DeleteMessageErrorKind::JetStream(refusal) if is_missing(&refusal) => false,
                DeleteMessageErrorKind::JetStream(refusal) => {
                    return Err(jetstream_failure("removing a dead letter", &refusal));
                }
                _ => return Err(transient("removing a dead letter", error)),
            },
        };
        self.listed = None;
        Ok(removed)
    }
}

/// Returns whether a message does not exist, as the server reports in several ways.
fn is_missing(refusal: &jetstream::Error) -> bool {
    let code = refusal.error_code();
    code == ErrorCode::NO_MESSAGE_FOUND
        || code == ErrorCode::SEQUENCE_NOT_FOUND
        || refusal.to_string().contains("no message found")
}

#[async_trait]
impl DeadLetters for JetStreamDeadLetters {
    async fn count(&mut self) -> Result<u64, SourceError> {
        let (_, stream) = self.open().await?;
        let info = stream.get_info().await.map_err(|error| transient("counting the dead letters", error))?;
        self.end = info.state.last_sequence;
        self.from = self.from.max(info.state.first_sequence);
        Ok(info.state.messages)
    }

    async fn next(&mut self) -> Result<Option<StoredLetter>, SourceError> {
        let (_, stream) = self.open().await?;
        if self.from > self.end {
            return Ok(None);
        }
        let mut message = match stream.direct_get_builder().sequence(self.from).next_by_subject(">").send().await {
            Ok(message) => message,
            Err(error) => match error.kind() {
                DirectGetErrorKind::NotFound => return Ok(None),
                _ => return Err(transient("reading the dead letters", error)),
            },
        };
        if message.sequence > self.end {
            return Ok(None);
        }
        self.from = message.sequence + 1;
        message.headers = without_control(message.headers);
        let origin = || self.copy_id(&message);
        let subject = original_subject(&message.headers).unwrap_or(&message.subject);
        let delivery = delivery(subject, message.sequence, Some(&message.headers), message.payload.to_vec(), origin);
        let left = letter(&message.headers);
        let letter = StoredLetter::at(message.sequence, delivery, left);
        self.listed = Some(message);
        Ok(Some(letter))
    }

    async fn put_back(&mut self) -> Result<bool, SourceError> {
        let message = self.listed()?;
        let (connection, _) = self.open().await?;
        let Some(subject) = original_subject(&message.headers) else {
            return Err(fatal(
                PUTTING_BACK,
                "another program wrote the letter, and its subject is unknown; publish it yourself",
            ));
        };
        let mut headers = HeaderWriter::default();
        headers.put_back(&message.headers);
        // Another redrive of this letter sends the same id.
        headers.message_id(&self.copy_id(&message));
        let publish = PublishMessage::build().headers(headers.0).payload(message.payload.clone());
        let sent = confirmed(&connection.jetstream, subject, publish).await;
        let sent = sent.map_err(|error| copy_failure(PUTTING_BACK, error))?;
        let is_removed = self.remove(message.sequence).await?;
        // Both signs together: another redrive has sent and removed the letter.
        Ok(is_removed || !sent.duplicate)
    }

    async fn discard(&mut self) -> Result<bool, SourceError> {
        let message = self.listed()?;
        self.remove(message.sequence).await
    }

    async fn close(&mut self) {
        self.opened = None;
    }
}
