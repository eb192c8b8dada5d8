//! Publishing of messages, e.g. for the relay of an outbox.
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use idempotent_mq::{OutboundMessage, Position, Publish, PublishError, PublishErrorKind, Published, publish_each};

use crate::message::Copy;
use crate::options::Server;
use crate::producer::Producer;

/// A publisher that produces messages to topics and returns their positions.
///
/// | message | Kafka |
/// |---|---|
/// | `topic` | the topic, which must exist |
/// | `body` | the value |
/// | `id` | the header `idempotent-id` |
/// | `aggregate` | the record key: messages of one aggregate have one partition, and are sent one after another |
/// | `business_key` | the record key without an aggregate, otherwise the header `idempotent-key` |
/// | headers | headers in order. Names of the adapter's own headers get the prefix `idempotent-user-` |
///
/// The partition of a key is the same as with the Java client. A message without a key gets a random partition. The
/// [position](Published::position) is the topic with the partition and the offset.
///
/// # Results
/// - [`Unconfirmed`](PublishErrorKind::Unconfirmed): the replicas did not confirm within 4 s, or no broker can be reached.
/// - [`Unsent`](PublishErrorKind::Unsent): the queue of the client is full.
/// - [`Refused`](PublishErrorKind::Refused): the topic does not exist, the user may not write to the topic, or the message is larger
///   than the client or the broker permits.
#[must_use]
pub struct KafkaPublisher {
    server: Server,
    producer: Mutex<Option<Arc<Producer>>>,
}

impl KafkaPublisher {
    /// Creates a publisher, which connects at its first message.
    pub fn new(server: impl Into<Server>) -> Self {
        Self { server: server.into(), producer: Mutex::default() }
    }

    fn producer(&self) -> Result<Arc<Producer>, PublishError> {
        let mut producer = self.producer.lock().unwrap_or_else(PoisonError::into_inner);
        if producer.is_none() {
            let created = Producer::new(&self.server)
                .map_err(|error| PublishError::new(PublishErrorKind::Refused, error.to_string()).with_cause(error))?;
            *producer = Some(Arc::new(created));
        }
        producer.clone().ok_or_else(PublishError::kept_back)
    }

    async fn send(&self, message: &OutboundMessage) -> Result<Published, PublishError> {
        let copy = Copy::of(message)?;
        let sent = self.producer()?.confirmed(&message.topic, copy).await?;
        let partition = u32::try_from(sent.partition).unwrap_or_default();
        Ok(Published::at(Position::of(&*message.topic).partition(partition).offset(sent.offset)))
    }
}

#[async_trait]
impl Publish for KafkaPublisher {
    async fn publish(&self, messages: &[OutboundMessage]) -> Vec<Result<Published, PublishError>> {
        publish_each(messages, |message| self.send(message)).await
    }
}

/// Shows nothing of the URL.
impl fmt::Debug for KafkaPublisher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KafkaPublisher").field("server", &self.server).finish_non_exhaustive()
    }
}
