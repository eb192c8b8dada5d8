//! The session of a source with its client: the messages in delivery, and the means to settle them.
use std::sync::Arc;
use std::time::Duration;

use idempotent_mq::{Delivery, MessagePlace};
use rocketmq_model::common::message::message_ext::MessageExt;
use rocketmq_model::common::message::message_queue::MessageQueue;
use tokio::sync::oneshot;

use crate::call_queue::CallQueue;
use crate::carrier::RetryHeaders;
use crate::drain::DrainState;
use crate::producer::{MessageProducer, PreparedMessage};
use crate::properties::TAGS;
use crate::queue_position::QueuePosition;
use crate::settings::SourceSettings;

/// The state that a client and the deliveries of one source share.
#[derive(Debug)]
pub(crate) struct ConsumerSession {
    pub(crate) settings: Arc<SourceSettings>,
    pub(crate) producer: Arc<MessageProducer>,
    pub(crate) drain: DrainState,
    pub(crate) calls: CallQueue<QueuedDelivery>,
}

/// A delivery that waits for the source to take it.
#[derive(Debug)]
pub(crate) struct QueuedDelivery {
    pub(crate) delivery: Delivery,
    pub(crate) headers: RetryHeaders,
    pub(crate) answer: oneshot::Sender<DeliveryAnswer>,
}

/// The answer for which a listener's thread waits.
#[derive(Debug)]
pub(crate) enum DeliveryAnswer {
    /// The delivery is settled, or its copy is stored.
    Settled,
    /// The message is delivered again with these headers after this delay, before the later messages of its queue.
    Again { headers: Box<RetryHeaders>, after: Duration },
    /// The delivery was dropped without a settlement.
    Dropped,
}

impl ConsumerSession {
    pub(crate) fn new(settings: Arc<SourceSettings>, producer: Arc<MessageProducer>) -> Self {
        Self { settings, producer, drain: DrainState::default(), calls: CallQueue::default() }
    }

    /// Returns whether the source takes messages with the tag of this message. The source selects by itself, because the
    /// broker of release 1.0 delivers nothing to a subscription by tags.
    pub(crate) fn wants(&self, message: &MessageExt) -> bool {
        self.settings.wants(message.properties().get(TAGS).map(|tag| tag.as_str()))
    }

    /// Decodes a message of this queue.
    pub(crate) fn decode(&self, message: &MessageExt, queue: &MessageQueue) -> (Delivery, RetryHeaders) {
        let properties = message.properties().iter().map(|(name, value)| (name.as_str(), value.as_str()));
        let is_copy = queue.topic().as_str() == self.settings.retry_topic;
        let place = if is_copy { MessagePlace::Retry } else { MessagePlace::Queue };
        let mut headers = RetryHeaders::decode(properties, message.flag(), place);
        if queue.topic().as_str() == self.settings.topic {
            headers.position = QueuePosition::new(queue, message.queue_offset());
        }
        let body = headers.read_body(message);
        let delivery = self.delivery(&headers, body, message.reconsume_times() > 0);
        (delivery, headers)
    }

    /// Returns a delivery with these headers.
    pub(crate) fn delivery(&self, headers: &RetryHeaders, body: Vec<u8>, redelivered: bool) -> Delivery {
        let settings = &self.settings;
        // All copies have the position of the original message, or none.
        let position = headers.position.as_ref().map(|position| position.position(&settings.topic));
        let position = position.unwrap_or_else(|| settings.position());
        let mut delivery = headers.delivery(position, body);
        delivery.redelivered = redelivered || headers.envelope.attempt.is_some();
        delivery.expires_at = headers.expires_at(settings.expires_at_header.as_deref());
        delivery
    }

    /// Returns an unchanged copy that the group receives after this delay.
    pub(crate) fn copy(&self, headers: &RetryHeaders, body: &[u8], after: Duration) -> PreparedMessage {
        PreparedMessage {
            topic: self.settings.retry_topic.clone(),
            properties: headers.encode_unchanged(),
            flag: headers.flag,
            level: self.settings.delay_levels.for_retry(after).number,
            body: body.to_vec(),
        }
    }
}
