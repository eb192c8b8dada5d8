//! The publisher as the broker of an outbox.
use async_trait::async_trait;
use idempotent_mq::{OutboundMessage, Publish, PublishError as OutboxError, Published};
use tokio::time::Instant;

use super::RabbitPublisher;
use super::error::{PublishError, PublishErrorKind};
use super::outcome::KnownState;
use crate::{FieldValue, RabbitMessage, Route};

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
/// [`publish_at`](RabbitPublisher::publish_at). The broker confirms the message when it has stored the message in a
/// delay queue.
#[async_trait]
impl Publish for RabbitPublisher {
    async fn publish(&self, messages: &[OutboundMessage]) -> Vec<Result<Published, OutboxError>> {
        self.publish_batch(messages).await
    }

    fn delays(&self) -> bool {
        true
    }
}

impl RabbitPublisher {
    /// Publishes a message of an outbox, with attempts until `end`. The caller holds a permit.
    pub(super) async fn publish_outbound(
        &self,
        known: KnownState,
        message: &OutboundMessage,
        converted: &RabbitMessage,
        end: Instant,
    ) -> Result<(), PublishError> {
        let to = route(&message.topic);
        match message.deliver_at {
            Some(at) => self.publish_at_until(known, &to, converted, at, end).await,
            None => self.publish_until(known, &to, converted, None, end).await,
        }
    }
}

pub(super) fn route(topic: &str) -> Route {
    match topic.split_once('/') {
        Some((exchange, key)) => Route::exchange(exchange, key),
        None => Route::queue(topic),
    }
}

pub(super) fn convert(message: &OutboundMessage) -> Result<RabbitMessage, PublishError> {
    let mut converted = RabbitMessage::new(&message.id, message.body.clone());
    for (name, value) in message.headers.iter() {
        if message.headers.all(name).count() > 1 {
            return Err(PublishError::refused(
                "headers: a name is repeated, and AMQP has one value for each name; join the values",
            ));
        }
        // Other clients read a text value as text.
        let text = String::from_utf8(value.to_vec()).map(FieldValue::Text);
        converted = converted.header(name, text.unwrap_or_else(|bytes| FieldValue::Bytes(bytes.into_bytes())));
    }
    Ok(match &message.business_key {
        Some(key) => converted.correlation_id(key),
        None => converted,
    })
}

pub(super) fn outbox_error(error: PublishError) -> OutboxError {
    let kind = match error.kind() {
        // A wrong password must not use up the attempts of every message.
        PublishErrorKind::Refused if error.is_unconnected() => idempotent_mq::PublishErrorKind::Unsent,
        PublishErrorKind::Unroutable | PublishErrorKind::Refused => idempotent_mq::PublishErrorKind::Refused,
        PublishErrorKind::NotSent => idempotent_mq::PublishErrorKind::Unsent,
        PublishErrorKind::Unconfirmed => idempotent_mq::PublishErrorKind::Unconfirmed,
    };
    OutboxError::new(kind, error.to_string()).with_cause(error)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_topic_is_a_queue_or_an_exchange_and_a_key() {
        assert_eq!(route("orders"), Route::queue("orders"));
        assert_eq!(route("payments/paid.eu/de"), Route::exchange("payments", "paid.eu/de"));
        assert_eq!(route("/a/b"), Route::exchange("", "a/b"), "a queue with `/` in its name");
    }

    #[test]
    fn a_repeated_header_is_refused_and_other_headers_are_kept() {
        let repeated = OutboundMessage::new("q", "m", "").header("a", "1").header("a", "2");
        assert_eq!(convert(&repeated).unwrap_err().kind(), PublishErrorKind::Refused);
        let odd = OutboundMessage::new("q", "m", "").header("text", "x").header("bytes", [0xff]);
        assert_eq!(convert(&odd).unwrap().id(), "m");
    }
}
