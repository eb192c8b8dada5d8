//! The source, which takes messages from a stream.
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_nats::Message;
use async_nats::jetstream;
use async_trait::async_trait;
use futures_util::future::try_join_all;
use idempotent_mq::{DelaySupport, Delivery, Received, Settle, Settlement, Source, SourceCapabilities, SourceError};

use crate::NatsOptions;
use crate::builder::JetStreamSourceBuilder;
use crate::error::fatal;
use crate::headers::delivery;
use crate::number::MessageNumber;
use crate::pulls::Pulls;
use crate::settler::{JetStreamSettler, JetStreamTag};

/// A source that reads a JetStream stream as one member of a durable pull consumer. See the [crate documentation](crate) for an
/// example.
pub struct JetStreamSource {
    settler: Arc<JetStreamSettler>,
    pulls: Pulls,
    ack_wait: Duration,
}

impl JetStreamSource {
    /// Connects with the default settings, as one member of this existing consumer. To create the stream and the consumer, use
    /// [`declare`](JetStreamSourceBuilder::declare).
    ///
    /// # Errors
    /// The same as [`JetStreamSourceBuilder::connect`].
    ///
    /// # Cancellation
    /// Nothing changes.
    pub async fn connect(
        server: impl Into<NatsOptions>,
        stream: impl Into<Arc<str>>,
        consumer: impl Into<Arc<str>>,
    ) -> Result<Self, SourceError> {
        Self::builder(server, stream, consumer).connect().await
    }

    /// Returns a builder for a source that reads this stream as one member of this durable consumer.
    pub fn builder(
        server: impl Into<NatsOptions>,
        stream: impl Into<Arc<str>>,
        consumer: impl Into<Arc<str>>,
    ) -> JetStreamSourceBuilder {
        JetStreamSourceBuilder::new(server.into(), stream.into(), consumer.into())
    }

    pub(crate) fn new(settler: JetStreamSettler, pulls: Pulls, ack_wait: Duration) -> Self {
        Self { settler: Arc::new(settler), pulls, ack_wait }
    }

    /// Converts messages, and reads the retry marks of redelivered messages.
    async fn deliveries(&self, messages: Vec<Message>) -> Result<Vec<(Delivery, JetStreamTag)>, SourceError> {
        try_join_all(messages.into_iter().map(|message| self.convert(message))).await
    }

    async fn convert(&self, message: Message) -> Result<(Delivery, JetStreamTag), SourceError> {
        let (number, delivered) = info(&self.settler, &message)?;
        let Message { subject, reply, payload, headers, .. } = message;
        let reply = reply.ok_or_else(|| fatal("receiving", "a message has no subject for its acknowledgement"))?;
        let origin = format!("{}/{number}", self.settler.stream);
        let mut delivery = delivery(&subject, number.sequence, headers.as_ref(), payload.into(), origin);
        let mark = if delivered > 1 { self.settler.marks.get(number).await? } else { None };
        delivery.attempt = Some(mark.map_or(1, |mark| mark.attempt));
        delivery.first_at = mark.map(|mark| mark.first_at).or(delivery.first_at);
        delivery.delivered = Some(delivered);
        delivery.redelivered = delivered > 1;
        Ok((delivery, JetStreamTag::new(reply, number, mark.is_some())))
    }
}

/// Returns the number of a message and the number of its deliveries.
fn info(settler: &JetStreamSettler, message: &Message) -> Result<(MessageNumber, u32), SourceError> {
    let message = jetstream::Message { message: message.clone(), context: settler.connection.jetstream.clone() };
    let info = message.info().map_err(|error| {
        let text = format!("a message was not delivered by JetStream: {error}");
        fatal("receiving", &text)
    })?;
    let number = MessageNumber { sequence: info.stream_sequence, stored_at: info.published.unix_timestamp_nanos() };
    Ok((number, u32::try_from(info.delivered).unwrap_or(u32::MAX)))
}

#[async_trait]
impl Source for JetStreamSource {
    type Tag = JetStreamTag;

    fn capabilities(&self) -> SourceCapabilities {
        SourceCapabilities::new(DelaySupport::UpTo(LONGEST)).keep_alive(self.ack_wait / 3).counts()
    }

    fn settler(&self) -> Arc<dyn Settle<JetStreamTag>> {
        self.settler.clone()
    }

    async fn receive(&mut self, room: usize) -> Result<Received<JetStreamTag>, SourceError> {
        let messages = self.pulls.next(room).await?;
        Ok(Received::Deliveries(self.deliveries(messages).await?))
    }

    async fn close(&mut self) {
        let left = self.pulls.close().await;
        for message in left {
            // A message that cannot be returned is redelivered when its time is over.
            if let Ok((delivery, tag)) = self.convert(message).await {
                let _ = self.settler.settle(&delivery, &tag, &Settlement::GiveBack).await;
            }
        }
    }
}

/// The longest delay in one piece. A retry mark outlives such a delay.
const LONGEST: Duration = Duration::from_secs(24 * 3600);

/// Shows nothing of the URL.
impl fmt::Debug for JetStreamSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JetStreamSource")
            .field("stream", &self.settler.stream)
            .field("ack_wait", &self.ack_wait)
            .finish_non_exhaustive()
    }
}
