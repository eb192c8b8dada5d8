//! Listing, redriving and removing the dead letters of a stream.
use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::stream::{DeleteMessageErrorKind, Stream};
use async_nats::jetstream::{self, ErrorCode};
use async_trait::async_trait;
use idempotent_mq::{LetterBox, SourceError, StoredLetter};

use crate::carrier::{HeaderWriter, letter, original_of, original_subject, without_control};
use crate::connection::Connection;
use crate::declare::existing_stream;
use crate::delayed::{contains, delayed_subjects};
use crate::error::{copy_failure, jetstream_failure, refused, transient};
use crate::options::Server;
use crate::publisher::confirmed;
use crate::raw_message::StoredMessage;

/// The dead letters of a stream, for [`Redrive`](idempotent_mq::Redrive).
///
/// Each letter is published to its original subject, and then removed. A letter whose subject is unknown or not in the stream is
/// [`Refused`](idempotent_mq::SourceErrorKind::Refused), unless [`putting_back_to`](Self::putting_back_to) names a subject.
///
/// If the process dies in between, or two processes redrive the same letter, the stream drops the second copy within its duplicate
/// window (2 min by default). A later copy is a duplicate with the same id. All consumers of the subject receive the message again.
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
    server: Server,
    stream: String,
    dead: String,
    /// The subject for all letters.
    subject: Option<String>,
    opened: Option<(Connection, Stream)>,
    /// The sequence number at which the search for the next letter begins.
    from: u64,
    /// The newest letter at the count, at which the listing ends.
    end: u64,
    listed: Option<ListedLetter>,
}

/// A letter that was read.
#[derive(Debug)]
pub struct ListedLetter {
    message: StoredMessage,
    /// The message that the letter refers to.
    original: Option<StoredMessage>,
}

const READING: &str = "reading the dead letters";
const PUTTING_BACK: &str = "putting a dead letter back";

impl JetStreamDeadLetters {
    /// Creates a handle to the dead letters in `STREAM-dead`.
    pub fn new(server: impl Into<Server>, stream: impl AsRef<str>) -> Self {
        Self {
            server: server.into(),
            stream: stream.as_ref().to_owned(),
            dead: format!("{}-dead", stream.as_ref()),
            subject: None,
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

    /// Sets the subject to which letters are put back, such as for letters of other programs. Some stream must contain this subject.
    ///
    /// # Default
    /// The subject of each message, which must lie in the stream
    pub fn putting_back_to(mut self, subject: impl Into<String>) -> Self {
        self.subject = Some(subject.into());
        self
    }

    async fn open(&mut self) -> Result<(Connection, Stream), SourceError> {
        if let Some((connection, stream)) = &self.opened {
            return Ok((connection.clone(), stream.clone()));
        }
        let connection = Connection::open(&self.server).await?;
        let stream = existing_stream(&connection, &self.dead).await?;
        self.opened = Some((connection.clone(), stream.clone()));
        Ok((connection, stream))
    }

    /// Returns the id of the message that is put back for a letter.
    fn copy_id(&self, letter: &StoredMessage) -> String {
        format!("{}/{}", self.dead, letter.number)
    }

    /// Reads the message that a letter refers to. Returns `None` if the letter is whole, or the message is gone.
    async fn original(
        &self,
        connection: &Connection,
        letter: &StoredMessage,
    ) -> Result<Option<StoredMessage>, SourceError> {
        match original_of(&letter.headers) {
            Some((stream, number)) if stream == self.stream => {
                let read = StoredMessage::from(connection, &stream, number.sequence, READING).await?;
                Ok(read.filter(|message| message.number == number))
            }
            _ => Ok(None),
        }
    }

    /// Returns the subject for a letter. A letter does not choose another stream.
    async fn subject(&self, connection: &Connection, letter: &StoredMessage) -> Result<String, SourceError> {
        if let Some(subject) = &self.subject {
            return Ok(subject.clone());
        }
        let Some(subject) = original_subject(&letter.headers) else {
            let text =
                "another program wrote the letter, and its subject is unknown; name a subject by `putting_back_to`";
            return Err(refused(PUTTING_BACK, text));
        };
        let stream = existing_stream(connection, &self.stream).await?;
        let mut patterns = stream.cached_info().config.subjects.iter();
        if !patterns.any(|pattern| contains(pattern, &subject)) || contains(&delayed_subjects(&self.stream), &subject) {
            let text = format!(
                "its subject is not one of the stream `{}`; name a subject by `putting_back_to`, or discard the letter",
                self.stream
            );
            return Err(refused(PUTTING_BACK, &text));
        }
        Ok(subject.into_owned())
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
impl LetterBox for JetStreamDeadLetters {
    type Letter = ListedLetter;

    fn listed(&mut self) -> &mut Option<ListedLetter> {
        &mut self.listed
    }

    async fn number(&mut self) -> Result<u64, SourceError> {
        let (_, stream) = self.open().await?;
        let info = stream.get_info().await.map_err(|error| transient("counting the dead letters", error))?;
        self.end = info.state.last_sequence;
        self.from = self.from.max(info.state.first_sequence);
        Ok(info.state.messages)
    }

    async fn fetch(&mut self) -> Result<Option<(StoredLetter, ListedLetter)>, SourceError> {
        let (connection, _) = self.open().await?;
        if self.from > self.end {
            return Ok(None);
        }
        let read = StoredMessage::from(&connection, &self.dead, self.from, READING).await?;
        let Some(mut message) = read.filter(|message| message.number.sequence <= self.end) else { return Ok(None) };
        let sequence = message.number.sequence;
        message.headers = without_control(message.headers);
        let subject = original_subject(&message.headers).unwrap_or_else(|| (&*message.subject).into()).into_owned();
        let mut delivery = message.delivery(&subject, || self.copy_id(&message));
        let original = self.original(&connection, &message).await?;
        if let Some(original) = &original {
            let whole = original.delivery(&subject, String::new);
            (delivery.body, delivery.headers) = (whole.body, whole.headers);
        }
        self.from = sequence + 1;
        let stored = StoredLetter::at(sequence, delivery, letter(&message.headers));
        Ok(Some((stored, ListedLetter { message, original })))
    }

    async fn revive(&mut self, letter: &ListedLetter) -> Result<bool, SourceError> {
        let (connection, _) = self.open().await?;
        let ListedLetter { message, original } = letter;
        let subject = self.subject(&connection, message).await?;
        let mut headers = HeaderWriter::default();
        headers.put_back(&message.headers);
        // Another redrive of this letter sends the same id.
        headers.message_id(&self.copy_id(message));
        let body = match original {
            Some(original) => {
                headers.append(&original.delivery(&subject, String::new).headers);
                original.body.clone()
            }
            None if original_of(&message.headers).is_some() => {
                let text = "the letter refers to a message that its stream no longer has; discard the letter";
                return Err(refused(PUTTING_BACK, text));
            }
            None => message.body.clone(),
        };
        let publish = PublishMessage::build().headers(headers.0).payload(body.into());
        let sent = confirmed(&connection.jetstream, &subject, publish).await;
        let sent = sent.map_err(|error| copy_failure(PUTTING_BACK, error))?;
        let is_removed = self.remove(letter).await?;
        // Both signs together: another redrive has sent and removed the letter.
        Ok(is_removed || !sent.duplicate)
    }

    async fn remove(&mut self, letter: &ListedLetter) -> Result<bool, SourceError> {
        let (_, stream) = self.open().await?;
        match stream.delete_message(letter.message.number.sequence).await {
            Ok(removed) => Ok(removed),
            Err(error) => match error.kind() {
                DeleteMessageErrorKind::JetStream(refusal) if is_missing(&refusal) => Ok(false),
                DeleteMessageErrorKind::JetStream(refusal) => {
                    Err(jetstream_failure("removing a dead letter", &refusal))
                }
                _ => Err(transient("removing a dead letter", error)),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::answered;

    #[test]
    fn the_server_names_a_missing_message_by_a_code_or_by_a_text() {
        for (code, err_code, description, expected) in [
            (404, 10_037, "no message found", true),
            (404, 10_037, "", true),
            (400, 10_043, "sequence 3 not found", true),
            (500, 10_057, "no message found", true),
            (404, 10_059, "stream not found", false),
        ] {
            assert_eq!(is_missing(&answered(code, err_code, description)), expected, "{err_code} {description}");
        }
    }
}
