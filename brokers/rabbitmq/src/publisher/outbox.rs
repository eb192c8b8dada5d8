//! The publisher as the broker of an outbox.
use async_trait::async_trait;
use idempotent_mq::{OutboundMessage, Publish, PublishError, Published};

use super::RabbitPublisher;

/// **Topic.** The topic is a queue, or `EXCHANGE/ROUTING KEY`. The first `/` ends the exchange. RabbitMQ does not
/// report positions.
///
/// **Batches.** Messages of different aggregates, or without an aggregate, share a few channels if this publisher has
/// sent a message to their exchange before. If a batch is not confirmed in time, each of its messages is sent again
/// separately. A queue may then contain a message twice with the same id. Messages of more than 256 KiB are sent
/// separately.
///
/// **Results.** All messages of a call share the time of
/// [`give_up_after`](super::RabbitPublisherBuilder::give_up_after). Keep that time below two thirds of the relay's
/// lease, as it is by default.
///
/// **Headers.** A [`business_key`](OutboundMessage::business_key) becomes the correlation id. AMQP has one value for
/// each header name, so a message with a repeated header is refused.
///
/// **Delays.** A message with [`deliver_at`](OutboundMessage::deliver_at) is sent separately, with the rules of
/// [`publish_after`](RabbitPublisher::publish_after). The broker confirms the message when it has stored the message in
/// a delay queue.
#[async_trait]
impl Publish for RabbitPublisher {
    async fn publish(&self, messages: &[OutboundMessage]) -> Vec<Result<Published, PublishError>> {
        self.publish_batch(messages).await
    }

    fn delays(&self) -> bool {
        true
    }
}
