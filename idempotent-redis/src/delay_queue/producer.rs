//! The queue as a producer, for the relay of an outbox and for scheduled tasks.
use std::time::Duration;

use async_trait::async_trait;
use idempotent_core::Timestamp;
use idempotent_mq::{
    Cancelled, Delay, DelayError, DelayErrorKind, OutboundMessage, Position, Publish, PublishError, PublishErrorKind,
    Published, Scheduled, publish_each,
};

use super::message::DelayMessage;
use super::queue::DelayQueue;

/// A producer that sends each message to the topic that the message names. The messages of an aggregate share a slot.
///
/// The producer uses the settings and connections of a queue. A message without a reply within the response timeout
/// fails as ambiguous. A message that could not be sent is retried for 2 s.
#[derive(Clone, Debug)]
#[must_use]
pub struct DelayProducer {
    queue: DelayQueue,
    after: Duration,
}

impl DelayProducer {
    /// Creates a producer for messages that are due at once.
    pub fn new(queue: &DelayQueue) -> Self {
        Self { queue: queue.clone(), after: Duration::ZERO }
    }

    /// Sets the delay between sending a message and its due time.
    ///
    /// # Default
    /// 0 s
    pub fn after(mut self, delay: Duration) -> Self {
        self.after = delay;
        self
    }

    async fn send(&self, outbound: &OutboundMessage) -> Result<Published, PublishError> {
        let other_topic;
        let queue = if outbound.topic == self.queue.topic() {
            &self.queue
        } else {
            other_topic = self.queue.for_topic(&outbound.topic).map_err(unpublished)?;
            &other_topic
        };
        let body = outbound.body.clone();
        let message = match outbound.deliver_at {
            Some(at) => DelayMessage::due(at, body),
            None => DelayMessage::after(self.after, body),
        };
        let mut message = message.id(&outbound.id);
        message.headers = outbound.headers.clone();
        message.business_key.clone_from(&outbound.business_key);
        message.basis.clone_from(&outbound.aggregate);
        let slot = message.basis().map_or(0, |basis| queue.0.topic.slot_of(basis));
        queue.send(&message).await.map_err(unpublished)?;
        Ok(Published::at(Position::of(outbound.topic.as_str()).partition(u32::from(slot))))
    }
}

#[async_trait]
impl Publish for DelayProducer {
    async fn publish(&self, messages: &[OutboundMessage]) -> Vec<Result<Published, PublishError>> {
        publish_each(messages, |message| self.send(message)).await
    }

    fn delays(&self) -> bool {
        true
    }
}

fn unpublished(error: DelayError) -> PublishError {
    let kind = match error.kind() {
        DelayErrorKind::NotApplied => PublishErrorKind::Unsent,
        DelayErrorKind::Ambiguous => PublishErrorKind::Unconfirmed,
        _ => PublishErrorKind::Refused,
    };
    PublishError::new(kind, error.to_string()).with_cause(error)
}

/// The scheduling key is the id of the message.
#[async_trait]
impl Delay for DelayQueue {
    async fn schedule(&self, key: &str, at: Timestamp, payload: &[u8]) -> Result<Scheduled, DelayError> {
        let sent = self.send(&DelayMessage::due(at, payload).id(key)).await?;
        Ok(if sent.is_new { Scheduled::New } else { Scheduled::Already { at: sent.at } })
    }

    async fn cancel(&self, key: &str) -> Result<Cancelled, DelayError> {
        self.cancel_in(key, key).await
    }
}
