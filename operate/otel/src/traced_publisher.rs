//! A publisher with a span for each call.
use std::borrow::Cow;

use async_trait::async_trait;
use idempotent_mq::{OutboundMessage, Publish, PublishError, PublishErrorKind, Published};
use tracing::{Instrument, Span};
use tracing_opentelemetry::OpenTelemetrySpanExt;

use crate::ProducerTracer;
use crate::attributes::{bounded, set_error};
use crate::trace_context::ExtractedContext;

/// A publisher that creates a span `send {topic}` for each call of another publisher.
///
/// The span has the kind client, and links to the context of each message. The context of a message is sent unchanged, so a relay that
/// sends later keeps the context of the transaction. A message without a context gets one, by
/// [`ProducerTracer::create`]. The span has the level debug, and the status error if a message was not accepted.
///
/// Create it by [`ProducerTracer::publisher`], for example for a relay:
///
/// ```
/// use std::sync::Arc;
///
/// use idempotent_mq::Publish;
/// use idempotent_otel::ProducerTracer;
/// use idempotent_sqlx::{Outbox, Relay};
///
/// fn relay(outbox: &Outbox<sqlx::Sqlite>, publisher: impl Publish) -> Relay<sqlx::Sqlite> {
///     Relay::new(outbox, Arc::new(ProducerTracer::new("rabbitmq").publisher(publisher)))
/// }
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct TracedPublisher<P> {
    tracer: ProducerTracer,
    publisher: P,
}

impl<P: Publish> TracedPublisher<P> {
    pub(crate) fn new(tracer: ProducerTracer, publisher: P) -> Self {
        Self { tracer, publisher }
    }

    /// Creates the span of a call, with a link to the context of each message.
    fn span(&self, messages: &[OutboundMessage]) -> Span {
        let first = messages.first().map(|message| message.topic.as_str());
        let topic = first.filter(|topic| messages.iter().all(|message| message.topic == *topic)).map(bounded);
        let name = topic.as_ref().map_or_else(|| "send".to_owned(), |topic| format!("send {topic}"));
        let span = tracing::debug_span!(
            target: "idempotent",
            "send",
            otel.name = name,
            otel.kind = "client",
            messaging.system = self.tracer.system(),
            messaging.operation.name = "send",
            messaging.operation.type = "send",
            messaging.destination.name = topic,
        );
        if !span.is_disabled() {
            if messages.len() > 1 {
                span.set_attribute("messaging.batch.message_count", i64::try_from(messages.len()).unwrap_or(i64::MAX));
            }
            let contexts = messages.iter().filter_map(|message| ExtractedContext::of(&message.headers).valid());
            contexts.for_each(|context| span.add_link(context));
        }
        span
    }
}

#[async_trait]
impl<P: Publish> Publish for TracedPublisher<P> {
    async fn publish(&self, messages: &[OutboundMessage]) -> Vec<Result<Published, PublishError>> {
        let has_context = |message: &OutboundMessage| ExtractedContext::of(&message.headers).valid().is_some();
        let messages = match messages.iter().all(has_context) {
            true => Cow::Borrowed(messages),
            false => messages.iter().map(|message| self.tracer.create(message.clone())).collect(),
        };
        let span = self.span(&messages);
        let results = self.publisher.publish(&messages).instrument(span.clone()).await;
        if let Some(error) = results.iter().find_map(|result| result.as_ref().err()) {
            set_error(&span, error_type(error.kind()));
        }
        results
    }

    fn delays(&self) -> bool {
        self.publisher.delays()
    }
}

fn error_type(kind: PublishErrorKind) -> &'static str {
    match kind {
        PublishErrorKind::Unsent => "unsent",
        PublishErrorKind::Unconfirmed => "unconfirmed",
        PublishErrorKind::Refused => "refused",
        _ => "other",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Delaying(bool);

    #[async_trait]
    impl Publish for Delaying {
        async fn publish(&self, _: &[OutboundMessage]) -> Vec<Result<Published, PublishError>> {
            Vec::new()
        }

        fn delays(&self) -> bool {
            self.0
        }
    }

    #[test]
    fn a_publisher_delays_if_its_broker_does() {
        let delays = [true, false].map(|delays| ProducerTracer::new("rabbitmq").publisher(Delaying(delays)).delays());
        assert_eq!(delays, [true, false]);
    }

    #[test]
    fn each_kind_of_error_has_a_type() {
        let kinds = [PublishErrorKind::Unsent, PublishErrorKind::Unconfirmed, PublishErrorKind::Refused];
        assert_eq!(kinds.map(error_type), ["unsent", "unconfirmed", "refused"]);
    }
}
