//! Settlement of messages.
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_nats::Subject;
use async_nats::jetstream::AckKind;
use async_nats::jetstream::message::PublishMessage;
use async_trait::async_trait;
use bytes::Bytes;
use idempotent_mq::{DeadLetter, Delivery, Retry, Settle, Settlement, SourceError, SourceErrorKind};

use crate::carrier::HeaderWriter;
use crate::connection::Connection;
use crate::error::{copy_failure, request_failure, transient};
use crate::number::MessageNumber;
use crate::publisher::confirmed;
use crate::retry_marks::{RetryMark, RetryMarks};

/// The handle that settles a message.
pub struct JetStreamTag {
    /// The subject of acknowledgements.
    reply: Subject,
    pub(crate) number: MessageNumber,
    /// The retry mark of the message, which its settlement removes.
    pub(crate) mark: Option<RetryMark>,
    /// True while the message is being delayed or returned. Keeping it alive would undo that.
    leaving: AtomicBool,
}

impl JetStreamTag {
    pub(crate) fn new(reply: Subject, number: MessageNumber) -> Self {
        Self { reply, number, mark: None, leaving: AtomicBool::new(false) }
    }
}

impl fmt::Debug for JetStreamTag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JetStreamTag").field("number", &self.number).finish_non_exhaustive()
    }
}

#[derive(Debug)]
pub(crate) struct JetStreamSettler {
    pub(crate) connection: Connection,
    pub(crate) stream: Arc<str>,
    /// The subject of the dead letters.
    pub(crate) dead: Arc<str>,
    /// The largest message that the stream of the dead letters accepts, or a negative number.
    pub(crate) dead_limit: i32,
    /// True if the stream keeps an acknowledged message.
    pub(crate) keeps_settled: bool,
    pub(crate) marks: RetryMarks,
}

#[async_trait]
impl Settle<JetStreamTag> for JetStreamSettler {
    async fn settle(
        &self,
        delivery: &Delivery,
        tag: &JetStreamTag,
        settlement: &Settlement,
    ) -> Result<(), SourceError> {
        match settlement {
            Settlement::Ack => self.ack(tag).await,
            Settlement::Retry(retry) => self.retry(tag, retry).await,
            Settlement::DeadLetter(letter) => self.dead_letter(delivery, tag, letter).await,
            Settlement::GiveBack => self.release(tag, None, "returning a message").await,
            other => {
                let text = format!("settlement `{}` is not supported by this source", other.name());
                Err(SourceError::new(SourceErrorKind::Fatal, text))
            }
        }
    }

    async fn keep_alive(&self, held: &[&JetStreamTag]) -> Result<(), SourceError> {
        for tag in held.iter().filter(|tag| !tag.leaving.load(Ordering::Acquire)) {
            let progress = Bytes::from(AckKind::Progress);
            let sent = self.connection.client.publish(tag.reply.clone(), progress).await;
            sent.map_err(|error| transient("extending messages", error))?;
        }
        Ok(())
    }
}

impl JetStreamSettler {
    /// Sends an acknowledgement, and waits until the server confirms it.
    async fn send(&self, tag: &JetStreamTag, kind: AckKind, doing: &str) -> Result<(), SourceError> {
        let answer = self.connection.client.request(tag.reply.clone(), Bytes::from(kind)).await;
        answer.map(drop).map_err(|error| request_failure(doing, error))
    }

    async fn ack(&self, tag: &JetStreamTag) -> Result<(), SourceError> {
        self.send(tag, AckKind::Ack, "acknowledging").await?;
        if tag.mark.is_some() {
            self.marks.remove(tag.number).await;
        }
        Ok(())
    }

    async fn retry(&self, tag: &JetStreamTag, retry: &Retry) -> Result<(), SourceError> {
        let mark = RetryMark::of(retry, tag.mark.map_or(0, |mark| mark.retried));
        self.marks.put(tag.number, mark).await?;
        // With a delay of 0, the server applies the backoff of the consumer.
        self.release(tag, Some(retry.after.max(Duration::from_millis(1))), "retrying a message").await
    }

    /// Makes a message available to all consumers after this time.
    async fn release(&self, tag: &JetStreamTag, after: Option<Duration>, doing: &str) -> Result<(), SourceError> {
        tag.leaving.store(true, Ordering::Release);
        let sent = self.send(tag, AckKind::Nak(after), doing).await;
        if sent.is_err() {
            tag.leaving.store(false, Ordering::Release);
        }
        sent
    }

    /// Returns this settler with another connection.
    pub(crate) fn over(&self, connection: Connection) -> Self {
        let (stream, dead, marks) = (self.stream.clone(), self.dead.clone(), self.marks.clone());
        Self { connection, stream, dead, marks, ..*self }
    }

    pub(crate) async fn dead_letter(
        &self,
        delivery: &Delivery,
        tag: &JetStreamTag,
        letter: &DeadLetter,
    ) -> Result<(), SourceError> {
        let (headers, body) = self.letter_that_fits(delivery, tag, letter);
        let copy = PublishMessage::build().headers(headers.0).payload(Bytes::copy_from_slice(body));
        let sent = confirmed(&self.connection.jetstream, &self.dead, copy).await;
        sent.map_err(|error| copy_failure("dead-lettering a message", error))?;
        self.ack(tag).await
    }

    /// Returns the headers and the body of a dead letter. If a whole copy is larger than the server accepts, the letter refers to the
    /// original, or lacks its headers if the server removes the original.
    fn letter_that_fits<'a>(
        &self,
        delivery: &'a Delivery,
        tag: &JetStreamTag,
        letter: &DeadLetter,
    ) -> (HeaderWriter, &'a [u8]) {
        let limit = self.connection.client.max_payload();
        let limit = usize::try_from(self.dead_limit).map_or(limit, |dead| limit.min(dead));
        let writer = || {
            let mut writer = HeaderWriter::default();
            // A copy that was sent before a crash has the same id, and the server drops this one.
            writer.message_id(&format!("{}/{}/{}", self.stream, tag.number, letter.deaths));
            writer
        };
        let mut whole = writer();
        whole.append(&delivery.headers);
        whole.letter(delivery, letter);
        if whole.len() <= MOST_HEADERS && whole.len() + delivery.body.len() <= limit {
            return (whole, &delivery.body);
        }
        let origin = format!("{}/{}", self.stream, tag.number);
        let (what, body) = match self.keeps_settled {
            true => ("refers to its message", &[][..]),
            false => ("lacks the headers of its message", &delivery.body[..]),
        };
        let mut short = letter.clone();
        short.reason = format!(
            "{}; a copy exceeds {limit} bytes, or {MOST_HEADERS} of headers, so this letter {what} {origin}",
            letter.reason
        )
        .into();
        tracing::warn!(target: "idempotent", message = %tag.number, stream = &*self.stream, limit,
            "a copy of the message is larger than the server accepts; the dead letter {what}");
        let mut headers = writer();
        headers.letter(delivery, &short);
        if self.keeps_settled {
            headers.original(&origin);
        }
        (headers, body)
    }
}

/// The most bytes of headers that a stream accepts.
const MOST_HEADERS: usize = 65_535;
