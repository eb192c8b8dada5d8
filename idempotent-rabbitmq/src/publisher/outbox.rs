//! Publishing for the relay of an outbox.
use async_trait::async_trait;
use idempotent_mq::{OutboundMessage, Publish, PublishError as MqPublishError, Published};

use super::{PublishError, PublishErrorKind, RabbitPublisher};
use crate::{FieldValue, RabbitMessage, Route};

/// The topic is a queue, or `EXCHANGE/ROUTING KEY`: the text before the first `/` is the exchange. RabbitMQ does not
/// report the position of a message in its queue.
///
/// Messages to exchanges that this publisher has already used share a few channels. If not all messages of one channel
/// are confirmed in time, the publisher sends each of them again on its own: a message may be in its queue twice,
/// under one id. A message above 256 KiB has a channel of its own.
///
/// All messages are given up [`give_up_after`](super::RabbitPublisherBuilder::give_up_after) after the call. This time
/// must be shorter than two thirds of the relay's lease, as it is by default. A
/// [`business_key`](OutboundMessage::business_key) is sent as the correlation id. AMQP has one value for each header
/// name, so a message with two values is refused.
///
/// A message with [`deliver_at`](OutboundMessage::deliver_at) has a channel of its own, like a message of
/// [`publish_at`](RabbitPublisher::publish_at). The clock of this process determines its delay, and the broker
/// confirms it as soon as it waits.
#[async_trait]
impl Publish for RabbitPublisher {
    async fn publish(&self, messages: &[OutboundMessage]) -> Vec<Result<Published, MqPublishError>> {
        self.publish_together(messages).await
    }

    fn delays(&self) -> bool {
        true
    }
}

pub(super) fn route(topic: &str) -> Route {
    match topic.split_once('/') {
        Some((exchange, key)) => Route::exchange(exchange, key),
        None => Route::queue(topic),
    }
}

pub(super) fn outgoing(message: &OutboundMessage) -> Result<RabbitMessage, PublishError> {
    let mut outgoing = RabbitMessage::new(&message.id, message.body.clone());
    for (name, value) in message.headers.iter() {
        if message.headers.all(name).count() > 1 {
            return Err(PublishError::refused("a header has two values: AMQP allows one value for each name"));
        }
        // Text if the value is valid UTF-8, because other clients read such a header as text.
        let text = String::from_utf8(value.to_vec()).map(FieldValue::Text);
        outgoing = outgoing.header(name, text.unwrap_or_else(|bytes| FieldValue::Bytes(bytes.into_bytes())));
    }
    Ok(match &message.business_key {
        Some(key) => outgoing.correlation_id(key),
        None => outgoing,
    })
}

pub(super) fn told(error: PublishError) -> MqPublishError {
    let kind = match error.kind() {
        // A wrong password must not use up the attempts of every message.
        PublishErrorKind::Refused if error.is_unconnected() => idempotent_mq::PublishErrorKind::Unsent,
        PublishErrorKind::Unroutable | PublishErrorKind::Refused => idempotent_mq::PublishErrorKind::Refused,
        PublishErrorKind::NotSent => idempotent_mq::PublishErrorKind::Unsent,
        PublishErrorKind::Unconfirmed => idempotent_mq::PublishErrorKind::Unconfirmed,
    };
    MqPublishError::new(kind, error.to_string()).with_cause(error)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_topic_is_a_queue_or_an_exchange_and_a_key() {
        assert_eq!(route("orders"), Route::queue("orders"));
        assert_eq!(route("payments/paid.eu/de"), Route::exchange("payments", "paid.eu/de"));
        assert_eq!(route("/a/b"), Route::exchange("", "a/b"), "a queue whose name has one");
    }

    #[test]
    fn a_header_that_stands_there_twice_is_refused_and_none_is_dropped() {
        let twice = OutboundMessage::new("q", "m", "").header("a", "1").header("a", "2");
        assert_eq!(outgoing(&twice).unwrap_err().kind(), PublishErrorKind::Refused);
        let odd = OutboundMessage::new("q", "m", "").header("text", "x").header("bytes", [0xff]);
        assert_eq!(outgoing(&odd).unwrap().id(), "m");
    }
}
