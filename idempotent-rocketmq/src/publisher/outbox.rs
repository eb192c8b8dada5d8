//! The publisher as an outbox's relay uses it.
use async_trait::async_trait;
use idempotent_mq::{OutboundMessage, Publish, PublishError as Untold, Published, publish_each};
use tokio::time::Instant;

use super::{PublishError, PublishErrorKind, RocketPublisher};
use crate::RocketMessage;

/// The topic is a topic, or `TOPIC:TAG`.
///
/// | of the message | becomes |
/// |---|---|
/// | `id` | `UNIQ_KEY`, by which [sources](crate::RocketSource) tell copies |
/// | `business_key` | `KEYS` |
/// | headers | as those of [`RocketMessage::header`]: text is a property, anything else is packed |
/// | `aggregate` | the choice of the queue, and the order in it |
///
/// Messages of one **aggregate** go one behind the other to one queue: the one that RocketMQ's clients choose by the hash of that
/// text (`SelectMessageQueueByHash`), so others may send to it, too. It is another one once the topic has more queues or
/// fewer, as when one of several brokers is away for longer than its name server waits. Messages of none go to all queues in turn.
///
/// The [position](Published::position) is the one that a [source](crate::RocketSource) says of the delivery: `TOPIC@BROKER`, the
/// queue, the offset in it. Of one queue they can be compared, greater is later; so a message that a consumer has passed counts
/// as lost. A source with [tags](crate::RocketSourceBuilder::tags) passes what it does not want: an outbox's consumer has to want
/// all that the outbox sends to its topic.
///
/// **What became of a message.** Messages are given up [`give_up_after`](super::RocketPublisherBuilder::give_up_after) they were
/// handed over, all of them: let that be shorter than two thirds of a relay's lease, as it is by default. A broker that cannot be reached, or
/// turns messages away as busy, leaves a message [`Unsent`](idempotent_mq::PublishErrorKind::Unsent); one whose answer stays out, or
/// does not tell whether it was stored,
/// [`Unconfirmed`](idempotent_mq::PublishErrorKind::Unconfirmed), as may be the first that are sent over a connection that
/// broke unnoticed. [`Refused`](idempotent_mq::PublishErrorKind::Refused) is what the broker would cut, misread or turn down,
/// and a topic that is not there, where brokers do not make topics by themselves (`autoCreateTopicEnable`): one that this
/// publisher has found before is only away, and so unsent; one that it has not, and whose only broker is away for longer than
/// the name server waits while others are there, is told as not there. By default brokers make topics: then a misspelt name is a
/// topic that nobody reads.
#[async_trait]
impl Publish for RocketPublisher {
    async fn publish(&self, messages: &[OutboundMessage]) -> Vec<Result<Published, Untold>> {
        let end = Instant::now() + self.0.give_up_after;
        publish_each(messages, async |message| {
            if message.deliver_at.is_some() {
                return Err(Untold::cannot_delay());
            }
            let (topic, outgoing) = outgoing(message);
            let sent = self.publish_by(end, topic, &outgoing, message.aggregate.as_deref()).await;
            let place = sent.map_err(told)?;
            Ok(place.map_or_else(Published::somewhere, |place| Published::at(place.position(topic))))
        })
        .await
    }
}

fn outgoing(message: &OutboundMessage) -> (&str, RocketMessage) {
    let mut outgoing = RocketMessage::new(&message.id, message.body.clone());
    for (name, value) in message.headers.iter() {
        outgoing = outgoing.header(name, value);
    }
    if let Some(key) = &message.business_key {
        outgoing = outgoing.key(key);
    }
    match message.topic.split_once(':') {
        Some((topic, tag)) => (topic, outgoing.tag(tag)),
        None => (&message.topic, outgoing),
    }
}

fn told(error: PublishError) -> Untold {
    let kind = match error.kind() {
        PublishErrorKind::Refused => idempotent_mq::PublishErrorKind::Refused,
        PublishErrorKind::NotSent => idempotent_mq::PublishErrorKind::Unsent,
        PublishErrorKind::Unconfirmed => idempotent_mq::PublishErrorKind::Unconfirmed,
    };
    Untold::new(kind, error.to_string()).with_cause(error)
}
