//! Filters of levels, and processes without a layer of OpenTelemetry.
use idempotent_core::{Outcome, Policy};
use idempotent_mq::{MemoryQueue, OutboundMessage, Publish};
use idempotent_otel::{ConsumerTracer, ProducerTracer, RunTracer};
use idempotent_testkit::VirtualClock;
use opentelemetry::trace::Status;
use opentelemetry_sdk::trace::Sampler;
use tracing::level_filters::LevelFilter;

use crate::world::{
    Broker, Traces, attribute, consume, consume_with, delivery, executor, header, id, links, runs, service_span, store,
    traced, traceparent,
};

#[tokio::test]
async fn at_level_info_the_span_of_the_delivery_has_the_links_and_the_outcome() {
    let traces = Traces::with(LevelFilter::INFO, Sampler::AlwaysOn);
    let queue = MemoryQueue::new("orders");
    let executor = traced();
    for _ in 0..2 {
        queue.send_delivery(delivery("m-1", "done"));
        let _ = consume_with(&queue, ConsumerTracer::new("memory"), &executor).await;
    }
    let spans = traces.all("process orders");
    assert!(traces.all("idempotent").is_empty(), "the run has no span of its own");
    assert_eq!(links(&spans[1]), [(id(&spans[0]), "first_run".to_owned())]);
    assert_eq!(attribute(&spans[1], "idempotent.outcome").unwrap(), "replayed");
}

#[tokio::test]
async fn without_a_span_of_its_own_a_run_leaves_the_status_of_its_caller_alone() {
    let traces = Traces::with(LevelFilter::INFO, Sampler::AlwaysOn);
    let clock = VirtualClock::new();
    let executor = executor(store(&clock), &clock, Policy::new(), RunTracer::new());
    let fails = async { Err(idempotent_core::Rejection::LeaseLost) };
    assert!(matches!(runs(&executor, "request", "k", fails).await, Outcome::Released { .. }));
    let request = traces.one("request");
    assert_eq!(attribute(&request, "idempotent.outcome").unwrap(), "released");
    assert_eq!((request.status.clone(), attribute(&request, "error.type")), (Status::Unset, None));
}

#[tokio::test]
async fn without_a_subscriber_messages_run_and_get_no_context() {
    let queue = MemoryQueue::new("orders");
    queue.send_delivery(delivery("m-1", "done").header("traceparent", "bad"));
    assert_eq!(consume(&queue, ConsumerTracer::new("memory")).await.acked, 1);
    let (tracer, broker) = (ProducerTracer::new("memory"), Broker::default());
    let message = OutboundMessage::new("orders", "m-1", "done");
    assert!(tracer.headers("orders").is_empty());
    assert!(tracer.publisher(broker.clone()).publish(std::slice::from_ref(&message)).await[0].is_ok());
    assert!(broker.taken() == [message], "the message is unchanged");
}

#[tokio::test]
async fn a_filtered_create_span_leaves_the_context_of_the_current_span() {
    let traces = Traces::with(LevelFilter::WARN, Sampler::AlwaysOn);
    let request = tracing::warn_span!(target: "service", "request");
    let message = request.in_scope(|| ProducerTracer::new("memory").create(OutboundMessage::new("orders", "m-1", "")));
    drop(request);
    assert_eq!(header(&message, "traceparent").unwrap(), traceparent(&traces.one("request")));
    assert!(service_span("hidden").is_disabled());
}
