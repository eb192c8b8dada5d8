//! The source, which takes messages from a stream.
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_nats::Message;
use async_nats::jetstream;
use async_trait::async_trait;
use futures_util::future::try_join_all;
use idempotent_mq::{DelaySupport, Delivery, Received, Settle, Settlement, Source, SourceCapabilities, SourceError};

use crate::builder::JetStreamSourceBuilder;
use crate::carrier::delivery;
use crate::error::fatal;
use crate::number::MessageNumber;
use crate::options::Server;
use crate::pulls::Pulls;
use crate::settler::{JetStreamSettler, JetStreamTag};
use crate::unreadable::UnreadableMessages;

/// A source that reads a JetStream stream as one member of a durable pull consumer. See the [crate documentation](crate) for an
/// example.
pub struct JetStreamSource {
    settler: Arc<JetStreamSettler>,
    pulls: Pulls,
    unreadable: UnreadableMessages,
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
        server: impl Into<Server>,
        stream: impl Into<Arc<str>>,
        consumer: impl Into<Arc<str>>,
    ) -> Result<Self, SourceError> {
        Self::builder(server, stream, consumer).connect().await
    }

    /// Returns a builder for a source that reads this stream as one member of this durable consumer.
    pub fn builder(
        server: impl Into<Server>,
        stream: impl Into<Arc<str>>,
        consumer: impl Into<Arc<str>>,
    ) -> JetStreamSourceBuilder {
        JetStreamSourceBuilder::new(server.into(), stream.into(), consumer.into())
    }

    pub(crate) fn new(
        settler: JetStreamSettler,
        pulls: Pulls,
        unreadable: UnreadableMessages,
        ack_wait: Duration,
    ) -> Self {
        Self { settler: Arc::new(settler), pulls, unreadable, ack_wait }
    }

    /// Converts messages, and reads the retry marks of redelivered messages.
    async fn deliveries(&self, messages: Vec<Message>) -> Result<Vec<(Delivery, JetStreamTag)>, SourceError> {
        let taken: Vec<_> =
            messages.into_iter().map(|message| self.settler.convert(message)).collect::<Result<_, _>>()?;
        let redelivered = taken.iter().filter(|(delivery, _)| delivery.redelivered).map(|(_, tag)| tag.number);
        let marks = try_join_all(redelivered.map(|number| self.settler.marks.get(number))).await?;
        let mut marks = marks.into_iter();
        let marked = taken.into_iter().map(|(mut delivery, mut tag)| {
            if delivery.redelivered
                && let Some(mark) = marks.next().flatten()
            {
                (delivery.attempt, delivery.first_at) = (Some(mark.attempt), Some(mark.first_at));
                delivery.delivered = delivery.delivered.map(|count| count.saturating_sub(mark.retried));
                tag.mark = Some(mark);
            }
            (delivery, tag)
        });
        Ok(marked.collect())
    }
}

impl JetStreamSettler {
    /// Converts a message, without its retry mark.
    fn convert(&self, message: Message) -> Result<(Delivery, JetStreamTag), SourceError> {
        let message = jetstream::Message { message, context: self.connection.jetstream.clone() };
        let info = message.info().map_err(|error| {
            let text = format!("a message was not delivered by JetStream: {error}");
            fatal("receiving", &text)
        })?;
        let number = MessageNumber { sequence: info.stream_sequence, stored_at: info.published.unix_timestamp_nanos() };
        let delivered = u32::try_from(info.delivered).unwrap_or(u32::MAX);
        let Message { subject, reply, payload, headers, .. } = message.message;
        let reply = reply.ok_or_else(|| fatal("receiving", "a message has no subject for its acknowledgement"))?;
        let origin = || format!("{}/{number}", self.stream);
        let mut delivery = delivery(&subject, number.sequence, headers.as_ref(), payload.into(), origin);
        delivery.attempt = Some(1);
        delivery.delivered = Some(delivered);
        delivery.redelivered = delivered > 1;
        Ok((delivery, JetStreamTag::new(reply, number)))
    }
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
        if let Some(suspicion) = self.pulls.suspicion() {
            let (error, is_solved) = self.unreadable.search(&self.settler, suspicion).await;
            if is_solved {
                self.pulls.losses.forget();
            }
            return Err(error);
        }
        let messages = self.pulls.next(room).await?;
        Ok(Received::Deliveries(self.deliveries(messages).await?))
    }

    async fn close(&mut self) {
        for message in self.pulls.close().await {
            // A message that cannot be returned is redelivered when its time is over.
            if let Ok((delivery, tag)) = self.settler.convert(message) {
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

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use async_nats::jetstream::consumer::PullConsumer;
    use async_nats::jetstream::consumer::pull::BatchConfig;
    use futures_util::StreamExt;
    use idempotent_harness::servers::NatsServer;

    use super::*;
    use crate::pulls::Suspicion;

    #[tokio::test]
    async fn a_search_has_succeeded_once_it_has_found_a_message() {
        let server = NatsServer::start();
        let builder = JetStreamSource::builder(server.url(), "ORDERS", "billing").declare(["orders"]);
        let JetStreamSource { mut unreadable, settler, .. } = builder.connect().await.unwrap();
        let mut is_found = async || unreadable.search(&settler, Suspicion::Lost(2)).await.1;
        assert!(!is_found().await);
        // The header has a second line, which the client accepts and the protocol does not know.
        server.publish_raw("orders", "trace: first\r\n second", "");
        // Another client receives the message, and acknowledges nothing.
        let client = async_nats::connect(server.address()).await.unwrap();
        let mut inbox = client.subscribe("inbox").await.unwrap();
        let consumer: PullConsumer =
            async_nats::jetstream::new(client).get_consumer_from_stream("billing", "ORDERS").await.unwrap();
        consumer.request_batch(BatchConfig { batch: 1, ..BatchConfig::default() }, "inbox".into()).await.unwrap();
        inbox.next().await.unwrap();
        assert!(is_found().await);
        assert!(!is_found().await);
    }
}
