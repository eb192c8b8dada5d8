//! The queue as a producer: for an outbox's relay, and for work that is scheduled.
use std::time::Duration;

use async_trait::async_trait;
use idempotent_core::Micros;
use idempotent_mq::{
    Cancelled, Delay, DelayError, DelayErrorKind, Outbound, Position, Publish, PublishError, PublishErrorKind,
    Published, Scheduled, publish_each,
};

use super::message::DelayMessage;
use super::queue::DelayQueue;

/// Sends messages to the topic that each names, with the settings and by the connections of a queue. Those of one
/// aggregate lie in one slot.
///
/// Gives up a message when the server has not answered within the response timeout, and what could not be sent at all
/// after 2 s.
#[derive(Clone, Debug)]
#[must_use]
pub struct DelayProducer {
    queue: DelayQueue,
    after: Duration,
}

impl DelayProducer {
    /// One that sends messages which are due at once.
    pub fn new(queue: &DelayQueue) -> Self {
        Self { queue: queue.clone(), after: Duration::ZERO }
    }

    /// So long after they were sent are messages due.
    ///
    /// # Default
    /// 0 s
    pub fn after(mut self, delay: Duration) -> Self {
        self.after = delay;
        self
    }

    async fn send(&self, outbound: &Outbound) -> Result<Published, PublishError> {
        let beside;
        let queue = if outbound.topic == self.queue.topic() {
            &self.queue
        } else {
            beside = self.queue.beside(&outbound.topic).map_err(unpublished)?;
            &beside
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
    async fn publish(&self, messages: &[Outbound]) -> Vec<Result<Published, PublishError>> {
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

/// The key is the message's id.
#[async_trait]
impl Delay for DelayQueue {
    async fn schedule(&self, key: &str, at: Micros, payload: &[u8]) -> Result<Scheduled, DelayError> {
        let sent = self.send(&DelayMessage::due(at, payload).id(key)).await?;
        Ok(if sent.is_new { Scheduled::New } else { Scheduled::Already { at: sent.at } })
    }

    async fn cancel(&self, key: &str) -> Result<Cancelled, DelayError> {
        self.cancel_in(key, key).await
    }
}
