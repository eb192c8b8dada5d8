//! Publishing for the relay of an outbox.
use async_trait::async_trait;
use idempotent_mq::{OutboundMessage, Publish, PublishError, Published, publish_each};
use tokio::time::Instant;

use super::RocketPublisher;

/// The topic of a message is a topic of RocketMQ, or `TOPIC:TAG`.
///
/// | field of the message | meaning |
/// |---|---|
/// | `id` | `UNIQ_KEY`, by which [sources](crate::RocketSource) detect copies |
/// | `business_key` | `KEYS` |
/// | headers | a text with a unique name becomes a property that every client can read. All other headers are packed into one property, which sources of this crate decode |
/// | `aggregate` | selects the queue, and keeps the order in the queue |
///
/// Messages of one **aggregate** are sent one after the other to one queue. The queue is the one that RocketMQ's clients select by the
/// hash of the aggregate's text (`SelectMessageQueueByHash`), so other producers may send to it too. The queue changes when the topic gets more or
/// fewer queues, for example when one of several brokers is unreachable for longer than the name server waits. Messages without an
/// aggregate are sent to all queues in turn.
///
/// The [position](Published::position) equals the position of the delivery at a [source](crate::RocketSource): `TOPIC@BROKER`, the
/// queue, and the offset. Positions of one queue are comparable, and later messages have greater ones. An outbox treats a message as
/// lost if a consumer has passed its position. A source with [tags](crate::RocketSourceBuilder::tags) skips other tags, so the
/// consumer of an outbox must take all tags that the outbox sends to its topic.
///
/// **Results.** All messages of a call share the time of [`give_up_after`](super::RocketPublisherBuilder::give_up_after). Keep that time
/// below two thirds of the relay's lease, as it is by default.
///
/// - [`Unsent`](idempotent_mq::PublishErrorKind::Unsent): the broker is busy or unreachable.
/// - [`Unconfirmed`](idempotent_mq::PublishErrorKind::Unconfirmed): the broker did not respond, or its response does not show whether the
///   message is stored. The first messages on a connection that broke unnoticed may also be unconfirmed.
/// - [`Refused`](idempotent_mq::PublishErrorKind::Refused): the broker would truncate, misread or reject the message, or the topic is missing
///   on brokers that do not create topics (`autoCreateTopicEnable`). A topic that this publisher has found before counts as
///   unreachable, so its messages are unsent. A topic that this publisher has never found counts as missing, even if its only broker is
///   unreachable for longer than the name server waits while other brokers are running.
///
/// **Delays.** A message with [`deliver_at`](OutboundMessage::deliver_at) needs a publisher whose
/// [`max_lateness`](super::RocketPublisherBuilder::max_lateness) covers all differences between delay levels, because the time until the relay
/// sends the message is not known in advance. All other publishers of this type refuse such a message. The message is never early by the
/// broker's clock, and late by `max_lateness` at most, plus the time that publishing takes. A time beyond the longest level is refused. A delayed message has no position
/// when it is published.
///
/// By default brokers create topics. A message to a misspelt topic then creates a topic without a consumer.
#[async_trait]
impl Publish for RocketPublisher {
    async fn publish(&self, messages: &[OutboundMessage]) -> Vec<Result<Published, PublishError>> {
        let end = Instant::now() + self.0.give_up_after;
        publish_each(messages, async |message| {
            if message.deliver_at.is_some() && !self.delays() {
                return Err(PublishError::cannot_delay());
            }
            self.publish_until(end, message, self.due_time(message)?).await
        })
        .await
    }

    fn delays(&self) -> bool {
        self.accepts_all_delays()
    }
}
