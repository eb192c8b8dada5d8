//! Publishing of messages, e.g. for the relay of an outbox.
use std::fmt;

use async_nats::jetstream::context::{GetStreamByNameErrorKind, PublishErrorKind as Kind};
use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::publish::PublishAck;
use async_nats::jetstream::{self, Context, ErrorCode};
use async_trait::async_trait;
use bytes::Bytes;
use idempotent_core::{Clock, SystemClock, Timestamp};
use idempotent_mq::{
    Field, OutboundMessage, Position, Publish, PublishError, PublishErrorKind, Published, SourceErrorKind, publish_each,
};
use tokio::sync::OnceCell;

use crate::carrier::HeaderWriter;
use crate::connection::Connection;
use crate::delayed::DelayStreams;
use crate::error::{is_undecided, refusal};
use crate::options::Server;

/// A publisher that adds messages to streams and returns their positions. The topic of a message is a subject.
///
/// | message | NATS |
/// |---|---|
/// | `topic` | the subject, which some stream must contain |
/// | `body` | the payload |
/// | `id` | the header `Nats-Msg-Id`: within its duplicate window (2 min by default), a stream drops a message that is sent again |
/// | `business_key` | the header `Idempotent-Key` |
/// | headers | headers. The adapter encodes names and values that NATS cannot transmit, and names that begin with `Nats-`, because these control the server |
/// | `deliver_at` | a schedule of the server, by the clock of the server that leads the stream. The server counts whole seconds: a message is up to about a second late, and never early |
/// | `aggregate` | not stored: messages of one aggregate are sent one after another, and a stream keeps their order |
///
/// The [position](Published::position) is the subject with the sequence number in the stream. The position of a delayed message is
/// unknown.
///
/// # Delays
/// Delayed messages need NATS 2.12 or later, and a stream with [`delays`](crate::JetStreamSourceBuilder::delays). The first delayed message
/// to a subject checks its stream, so the user must be allowed to publish to `$JS.API.>`. A message that is sent again within the duplicate window
/// of the stream is dropped, and later, before its time, it replaces the first one. A delayed message cannot be cancelled.
///
/// # Results
/// - [`Unconfirmed`](PublishErrorKind::Unconfirmed): the stream did not confirm within 5 s.
/// - [`Unsent`](PublishErrorKind::Unsent): the server cannot be reached, or the stream has no leader or no resources.
/// - [`Refused`](PublishErrorKind::Refused): no stream contains the subject, the message is larger than the server permits, the
///   stream rejects it, for example because it is full, or the stream cannot delay it.
#[must_use]
pub struct JetStreamPublisher {
    server: Server,
    connection: OnceCell<Connection>,
    delay_streams: DelayStreams,
}

impl JetStreamPublisher {
    /// Creates a publisher, which connects at its first message.
    pub fn new(server: impl Into<Server>) -> Self {
        Self { server: server.into(), connection: OnceCell::new(), delay_streams: DelayStreams::default() }
    }

    async fn send(&self, message: &OutboundMessage) -> Result<Published, PublishError> {
        let connection = self.connection.get_or_try_init(|| Connection::open(&self.server)).await.map_err(|error| {
            let kind = match error.kind() {
                SourceErrorKind::Fatal => PublishErrorKind::Refused,
                _ => PublishErrorKind::Unsent,
            };
            PublishError::new(kind, error.to_string()).with_cause(error)
        })?;
        if !connection.is_connected() {
            return Err(PublishError::new(
                PublishErrorKind::Unsent,
                "the connection is lost, and the client reconnects",
            ));
        }
        let mut headers = HeaderWriter::default();
        headers.append(&message.headers);
        if let Some(key) = &message.business_key {
            headers.set_field(Field::BusinessKey, key);
        }
        headers.message_id(&message.id);
        if let Some(at) = message.deliver_at {
            return self.send_delayed(connection, message, headers, at).await;
        }
        let publish = PublishMessage::build().headers(headers.0).payload(Bytes::copy_from_slice(&message.body));
        let confirmed = confirmed(&connection.jetstream, &message.topic, publish).await?;
        Ok(Published::at(Position::of(&*message.topic).offset(confirmed.sequence)))
    }

    /// Sends a message that the server stores under its subject at this time.
    async fn send_delayed(
        &self,
        connection: &Connection,
        message: &OutboundMessage,
        mut headers: HeaderWriter,
        at: Timestamp,
    ) -> Result<Published, PublishError> {
        let stream = self.delay_streams.of(connection, &message.topic).await?;
        headers.schedule(&message.id, &message.topic, &stream.schedule(at, SystemClock::new().wall())?);
        let publish = PublishMessage::build().headers(headers.0).payload(Bytes::copy_from_slice(&message.body));
        // Another stream may not delay the message.
        let publish = publish.expected_stream(&*stream.name);
        let sent = confirmed(&connection.jetstream, &stream.subject(message), publish).await;
        if sent.as_ref().is_err_and(|error| error.kind() == PublishErrorKind::Refused) {
            // The subject may belong to another stream by now.
            self.delay_streams.forget(&message.topic);
        }
        sent.map(|_| Published::somewhere())
    }
}

#[async_trait]
impl Publish for JetStreamPublisher {
    async fn publish(&self, messages: &[OutboundMessage]) -> Vec<Result<Published, PublishError>> {
        publish_each(messages, |message| self.send(message)).await
    }

    fn delays(&self) -> bool {
        true
    }
}

/// Publishes a message, and waits until its stream confirms it.
pub(crate) async fn confirmed(
    jetstream: &Context,
    subject: &str,
    message: PublishMessage,
) -> Result<PublishAck, PublishError> {
    let sent = match jetstream.send_publish(subject.to_owned(), message).await {
        Ok(confirmation) => confirmation.await,
        Err(error) => Err(error),
    };
    let error = match sent {
        Ok(confirmed) => return Ok(confirmed),
        Err(error) => error,
    };
    let (kind, remedy) = match error.kind() {
        Kind::StreamNotFound => {
            without_stream(jetstream.stream_by_subject(subject).await.map_err(|error| error.kind()))
        }
        kind => classify(kind, refusal(&error)),
    };
    Err(PublishError::new(kind, format!("publishing to `{subject}`: {error}{remedy}")).with_cause(error))
}

/// Interprets that no server takes a message: no stream contains the subject, or its stream has no leader at the moment.
fn without_stream(stream: Result<String, GetStreamByNameErrorKind>) -> (PublishErrorKind, &'static str) {
    match stream {
        Ok(_) => (PublishErrorKind::Unsent, "; the stream has no leader at the moment"),
        Err(GetStreamByNameErrorKind::NotFound) => (PublishErrorKind::Refused, "; create a stream with this subject"),
        Err(_) => (
            PublishErrorKind::Unsent,
            "; is JetStream enabled, has it a leader, and may the user publish to `$JS.API.>`?",
        ),
    }
}

fn classify(kind: Kind, refusal: Option<&jetstream::Error>) -> (PublishErrorKind, &'static str) {
    use PublishErrorKind::{Refused, Unconfirmed, Unsent};
    match (kind, refusal) {
        (Kind::MaxPayloadExceeded, _) => (Refused, "; raise `max_payload` of the server, or send a shorter body"),
        (Kind::TimedOut | Kind::BrokenPipe, _) => (Unconfirmed, ""),
        (Kind::MaxAckPending, _) => (Unsent, ""),
        (_, Some(refusal)) if is_undecided(refusal) => (Unconfirmed, ""),
        (_, Some(refusal)) if refusal.error_code() == ErrorCode::STREAM_MESSAGE_EXCEEDS_MAXIMUM => {
            (Refused, "; raise `max_msg_size` of the stream, or send a shorter body")
        }
        (_, Some(refusal)) if refusal.error_code() == ErrorCode::STREAM_HEADER_EXCEEDS_MAXIMUM => {
            (Refused, "; send shorter headers")
        }
        // A stream that is full.
        (_, Some(refusal)) if refusal.error_code() == ErrorCode::STREAM_STORE_FAILED => (Refused, ""),
        // No leader, no resources, or a server that is starting.
        (_, Some(refusal)) if refusal.code() == 503 || refusal.to_string().contains("leader") => (Unsent, ""),
        _ => (Refused, ""),
    }
}

/// Shows nothing of the URL.
impl fmt::Debug for JetStreamPublisher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JetStreamPublisher").field("server", &self.server).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::answered;

    #[test]
    fn a_refusal_is_final_unless_a_retry_may_succeed_or_the_message_may_be_stored() {
        use PublishErrorKind::{Refused, Unconfirmed, Unsent};
        for (status, code, description, expected) in [
            (500, 10158, "duplicate message id is in process", Unconfirmed),
            (503, 10077, "store is closed", Unconfirmed),
            (503, 10077, "maximum messages exceeded", Refused),
            (503, 10023, "insufficient resources", Unsent),
            (500, 10009, "JetStream cluster not a leader", Unsent),
            (400, 10054, "message size exceeds maximum allowed", Refused),
        ] {
            let refusal = answered(status, code, description);
            assert_eq!(classify(Kind::Other, Some(&refusal)).0, expected, "{refusal}");
        }
        assert_eq!(classify(Kind::TimedOut, None).0, Unconfirmed);
        assert_eq!(classify(Kind::MaxAckPending, None).0, Unsent);
        assert_eq!(classify(Kind::Other, None).0, Refused);
        assert_eq!(without_stream(Ok("ORDERS".to_owned())).0, Unsent);
        assert_eq!(without_stream(Err(GetStreamByNameErrorKind::NotFound)).0, Refused);
        assert_eq!(without_stream(Err(GetStreamByNameErrorKind::Request)).0, Unsent);
    }
}
