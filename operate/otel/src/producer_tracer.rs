//! The trace context of messages that are created.
use std::sync::Arc;

use idempotent_mq::{OutboundMessage, Publish};
use opentelemetry::Context;
use opentelemetry::trace::{SpanContext, TraceContextExt};
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt;

use crate::TracedPublisher;
use crate::attributes::bounded;
use crate::trace_context::{ExtractedContext, headers_of, replace};

/// A tracer that writes the trace context into the headers of messages, as `traceparent` and `tracestate` of W3C.
///
/// Write the context when the message is created, for example when an outbox or a delay queue stores it. The message keeps the context
/// on its way, so the consumer's span belongs to the trace of the transaction, however late the message is sent. Baggage is not written.
///
/// ```
/// use idempotent_mq::OutboundMessage;
/// use idempotent_otel::ProducerTracer;
///
/// let tracer = ProducerTracer::new("rabbitmq");
/// // Pass the message to `Outbox::enqueue`, or to a publisher.
/// let message = tracer.create(OutboundMessage::new("payments", "payment-17", b"17".to_vec()));
/// # drop(message);
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct ProducerTracer {
    system: Arc<str>,
}

impl ProducerTracer {
    /// Creates a tracer. The system is the value of `messaging.system`, such as `rabbitmq`, `rocketmq` or `redis_streams`.
    pub fn new(system: impl Into<Arc<str>>) -> Self {
        Self { system: system.into() }
    }

    /// Creates a span `create {topic}` of kind producer, and writes its context into the message. A message with a valid context is
    /// returned unchanged. A malformed context is replaced.
    ///
    /// Without a layer of OpenTelemetry, the message gets no context.
    #[must_use]
    pub fn create(&self, mut message: OutboundMessage) -> OutboundMessage {
        if ExtractedContext::of(&message.headers).valid().is_none() {
            replace(&mut message.headers, self.headers(&message.topic));
        }
        message
    }

    /// Creates a span `create {topic}` of kind producer, and returns the headers with its context, for messages of other types.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use idempotent_otel::ProducerTracer;
    /// use idempotent_redis::DelayMessage;
    ///
    /// let headers = ProducerTracer::new("redis").headers("reminders");
    /// let message = DelayMessage::after(Duration::from_secs(60), b"17".to_vec());
    /// let message = headers.into_iter().fold(message, |message, (name, value)| message.header(name, value));
    /// # drop(message);
    /// ```
    #[must_use]
    pub fn headers(&self, topic: &str) -> Vec<(&'static str, String)> {
        let topic = bounded(topic);
        let span = tracing::info_span!(
            target: "idempotent",
            "create",
            otel.name = format!("create {topic}"),
            otel.kind = "producer",
            messaging.system = &*self.system,
            messaging.operation.name = "create",
            messaging.operation.type = "create",
            messaging.destination.name = topic,
        );
        // A disabled span has no context, and the message belongs to the current span.
        let contexts = [span_context(&span), span_context(&Span::current()), ambient_context()];
        contexts.iter().find(|context| context.is_valid()).map(headers_of).unwrap_or_default()
    }

    /// Returns a publisher that creates a span for each call of `publisher`.
    pub fn publisher<P: Publish>(&self, publisher: P) -> TracedPublisher<P> {
        TracedPublisher::new(self.clone(), publisher)
    }

    pub(crate) fn system(&self) -> &str {
        &self.system
    }
}

fn span_context(span: &Span) -> SpanContext {
    span.context().span().span_context().clone()
}

/// Returns the context of code that uses the API of OpenTelemetry without spans of `tracing`.
fn ambient_context() -> SpanContext {
    Context::current().span().span_context().clone()
}
