//! The observer that gives each delivery a span.
use std::sync::Arc;

use idempotent_mq::{DeliveryObserver, SettledDelivery, StartedDelivery};
use opentelemetry::Context;
use opentelemetry::trace::TraceContextExt;
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt;

use crate::attributes::{bounded, set_error, set_outcome, set_status};
use crate::trace_context::ExtractedContext;

/// An observer that gives each delivery of a consumer a span by the messaging conventions of OpenTelemetry.
///
/// The span `process {destination}` has the kind consumer, and covers claim, handler and settlement, and the wait of a delivery
/// that is claimed ahead. A delivery that is
/// settled without a run, for example because its body cannot be decoded, has the span `settle {destination}` of kind client.
///
/// The span that created the message is the parent of the span, and also a link. The conventions (version
/// [`SEMCONV_VERSION`](crate::SEMCONV_VERSION)) ask for the link and permit the parent, since each span is about one message and a
/// consumer has no other span around it. Deliveries of one message are therefore in one trace, in all processes.
///
/// A malformed header `traceparent` is ignored. The span then starts a trace of its own, and has the attribute
/// `idempotent.trace_context` with the value `invalid`.
///
/// ```
/// use idempotent_core::Executor;
/// use idempotent_mq::{Consumer, MessageHandler, SetupError, Source};
/// use idempotent_otel::ConsumerTracer;
///
/// fn consumer<S: Source>(source: S, executor: &Executor, handler: MessageHandler) -> Result<Consumer<S>, SetupError> {
///     let tracer = ConsumerTracer::new("rabbitmq");
///     Consumer::builder(source, "billing", executor).observer(tracer).build(handler)
/// }
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct ConsumerTracer {
    system: Arc<str>,
    message_ids: bool,
    link_only: bool,
}

impl ConsumerTracer {
    /// Creates a tracer. The system is the value of `messaging.system`, such as `rabbitmq`, `rocketmq` or `redis_streams`.
    pub fn new(system: impl Into<Arc<str>>) -> Self {
        Self { system: system.into(), message_ids: false, link_only: false }
    }

    /// Sets whether spans contain `messaging.message.id`. An id may be a business key or personal data.
    ///
    /// # Default
    /// `false`
    pub fn message_ids(mut self, record: bool) -> Self {
        self.message_ids = record;
        self
    }

    /// Sets whether each delivery starts a new trace that only links to the span that created the message. Use this if the
    /// producers are not trusted, because a parent also decides whether a trace is sampled.
    ///
    /// # Default
    /// `false`
    pub fn link_only(mut self, link_only: bool) -> Self {
        self.link_only = link_only;
        self
    }
}

impl DeliveryObserver for ConsumerTracer {
    fn span(&self, started: &StartedDelivery<'_>) -> Option<Span> {
        let delivery = started.delivery;
        let (operation, kind) = if started.runs { ("process", "consumer") } else { ("settle", "client") };
        let destination = bounded(&delivery.position.source);
        // Without a parent: the task that starts workers belongs to no delivery.
        let span = tracing::info_span!(
            target: "idempotent",
            parent: None,
            "delivery",
            otel.name = format!("{operation} {destination}"),
            otel.kind = kind,
            messaging.system = &*self.system,
            messaging.operation.name = operation,
            messaging.operation.type = operation,
            messaging.destination.name = destination,
            messaging.consumer.group.name = bounded(started.group),
            messaging.message.body.size = delivery.body.len(),
        );
        if span.is_disabled() {
            return None;
        }
        if let Some(partition) = delivery.position.partition {
            span.set_attribute("messaging.destination.partition.id", partition.to_string());
        }
        if let Some(id) = delivery.id.as_deref().filter(|_| self.message_ids) {
            span.set_attribute("messaging.message.id", bounded(id));
        }
        match ExtractedContext::of(&delivery.headers) {
            ExtractedContext::Valid(created) => {
                span.add_link(created.clone());
                if !self.link_only {
                    // The span has not been entered yet. Without a layer of OpenTelemetry, there is no parent to set.
                    let _ = span.set_parent(Context::new().with_remote_span_context(created));
                }
            }
            ExtractedContext::Invalid => span.set_attribute("idempotent.trace_context", "invalid"),
            ExtractedContext::Missing => {}
        }
        Some(span)
    }

    fn settled(&self, settled: &SettledDelivery<'_>) {
        let span = Span::current();
        span.set_attribute("idempotent.settlement", settled.end);
        match settled.outcome {
            Some(outcome) => {
                set_outcome(&span, outcome, settled.key, settled.attempt);
                set_status(&span, outcome);
            }
            None if matches!(settled.end, "dead_lettered" | "unsettled") => set_error(&span, settled.end),
            None => {}
        }
    }
}
