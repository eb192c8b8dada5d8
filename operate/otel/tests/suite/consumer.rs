//! Spans of deliveries.
use idempotent_mq::{ConsumerCounts, Delivery, MemoryQueue, OutboundMessage};
use idempotent_otel::{ConsumerTracer, ProducerTracer};
use opentelemetry::trace::{SpanKind, Status};

use crate::world::{Traces, attribute, attributes, consume, delivery, id, links, service_span};

fn tracer() -> ConsumerTracer {
    ConsumerTracer::new("memory")
}

/// Consumes one delivery from the queue `orders`.
async fn consumed(delivery: Delivery, tracer: ConsumerTracer) -> (Traces, ConsumerCounts) {
    let (traces, queue) = (Traces::start(), MemoryQueue::new("orders"));
    queue.send_delivery(delivery);
    let counts = consume(&queue, tracer).await;
    (traces, counts)
}

#[tokio::test]
async fn the_span_of_a_delivery_is_a_child_of_its_creation_and_links_to_it() {
    let traces = Traces::start();
    let queue = MemoryQueue::new("orders");
    let message = service_span("request")
        .in_scope(|| ProducerTracer::new("memory").create(OutboundMessage::new("orders", "m-1", "done")));
    let mut delivery = delivery("m-1", "done");
    delivery.headers = message.headers;
    queue.send_delivery(delivery);
    // The consumer itself runs in a span, which is about no delivery.
    let main = service_span("main");
    let _ = tracing::Instrument::instrument(consume(&queue, tracer()), main).await;
    let (request, create) = (traces.one("request"), traces.one("create orders"));
    let (process, run) = (traces.one("process orders"), traces.one("idempotent"));
    assert_eq!((create.parent_span_id, &create.span_kind), (id(&request), &SpanKind::Producer));
    assert_eq!((process.parent_span_id, process.parent_span_is_remote), (id(&create), true));
    assert_eq!(links(&process), [(id(&create), String::new())]);
    assert_eq!(run.parent_span_id, id(&process));
    let trace = request.span_context.trace_id();
    assert!([&create, &process, &run].iter().all(|span| span.span_context.trace_id() == trace));
    assert_eq!(process.status, Status::Unset);
}

#[tokio::test]
async fn a_span_has_the_attributes_of_the_conventions() {
    let (traces, _) = consumed(delivery("m-1", "done"), tracer()).await;
    let span = traces.one("process orders");
    assert_eq!(span.span_kind, SpanKind::Consumer);
    let own = attributes(&span);
    let expected = [
        ("messaging.system", "memory"),
        ("messaging.operation.name", "process"),
        ("messaging.operation.type", "process"),
        ("messaging.destination.name", "orders"),
        ("messaging.consumer.group.name", "billing"),
        ("messaging.message.body.size", "4"),
        ("idempotent.outcome", "ran"),
        ("idempotent.attempt", "1"),
        ("idempotent.duplicate", "false"),
        ("idempotent.settlement", "acked"),
    ];
    for (name, value) in expected {
        assert_eq!(own.get(name).map(String::as_str), Some(value), "{name} of {own:?}");
    }
    assert_eq!(attribute(&span, "idempotent.key_hash").unwrap().len(), 22);
    assert!(!own.contains_key("messaging.message.id") && !own.contains_key("error.type"), "{own:?}");
}

#[tokio::test]
async fn ids_are_recorded_on_request_and_long_names_are_cut() {
    let traces = Traces::start();
    let queue = MemoryQueue::new(format!("orders\n{}", "é".repeat(10_000)));
    queue.send_delivery(delivery("m-1", "done"));
    let _ = consume(&queue, tracer().message_ids(true)).await;
    let ended = traces.ended();
    let span = ended.iter().find(|span| span.span_kind == SpanKind::Consumer).unwrap();
    assert_eq!(attribute(span, "messaging.message.id").unwrap(), "m-1");
    assert!(span.name.starts_with("process orders_é") && span.name.len() <= 128, "{}", span.name);
    assert!(attribute(span, "messaging.destination.name").unwrap().len() <= 120);
}

#[tokio::test]
async fn failures_are_errors_and_retries_have_spans_of_their_own() {
    let (traces, _) = consumed(delivery("m-1", "again"), tracer()).await;
    let spans = traces.all("process orders");
    for (name, values) in
        [("settlement", ["retried", "acked"]), ("outcome", ["released", "ran"]), ("attempt", ["1", "2"])]
    {
        let found: Vec<_> = spans.iter().map(|span| attribute(span, &format!("idempotent.{name}")).unwrap()).collect();
        assert_eq!(found, values, "{name}");
    }
    assert_eq!(spans[0].status, Status::error("released"));
    assert_eq!(attribute(&spans[0], "error.type").unwrap(), "released");
    assert_eq!(spans[1].status, Status::Unset);
}

#[tokio::test]
async fn a_delivery_that_is_settled_without_a_run_has_a_settle_span() {
    let mut undecodable = delivery("m-1", "");
    undecodable.body = vec![0xff];
    let (traces, counts) = consumed(undecodable, tracer()).await;
    assert_eq!(counts.dead_lettered, 1);
    let span = traces.one("settle orders");
    assert_eq!((&span.span_kind, &span.status), (&SpanKind::Client, &Status::error("dead_lettered")));
    assert_eq!(attribute(&span, "idempotent.settlement").unwrap(), "dead_lettered");
    assert!(traces.all("process orders").is_empty());
}

#[tokio::test]
async fn an_expired_message_is_no_error() {
    let mut expired = delivery("m-1", "done");
    expired.expires_at = Some(idempotent_core::Timestamp(1));
    let (traces, counts) = consumed(expired, tracer()).await;
    assert_eq!(counts.expired, 1);
    let span = traces.one("settle orders");
    assert_eq!(attribute(&span, "idempotent.settlement").unwrap(), "expired");
    assert_eq!((&span.status, attribute(&span, "error.type")), (&Status::Unset, None));
}

#[tokio::test]
async fn untrusted_producers_are_only_linked() {
    let parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00";
    // Not sampled: as a parent, the producer would suppress the span.
    let (traces, _) = consumed(delivery("m-1", "done").header("traceparent", parent), tracer().link_only(true)).await;
    let span = traces.one("process orders");
    assert_eq!(span.parent_span_id, opentelemetry::trace::SpanId::INVALID);
    assert_eq!(links(&span)[0].0.to_string(), "00f067aa0ba902b7");
    assert_ne!(span.span_context.trace_id().to_string(), "4bf92f3577b34da6a3ce929d0e0e4736");
}

#[tokio::test]
async fn a_pair_of_observers_sees_the_ends_and_uses_the_first_span() {
    let traces = Traces::start();
    let queue = MemoryQueue::new("orders");
    queue.send_delivery(delivery("m-1", "done"));
    let executor = idempotent_core::Executor::new(idempotent_core::MemoryStore::new());
    let handling = idempotent_mq::Messages::raw()
        .keyed(idempotent_mq::KeyFrom::message_id())
        .run(async |_: idempotent_mq::Message<()>| Ok::<_, &str>(()));
    let consumer = idempotent_mq::Consumer::builder(queue.source(), "billing", &executor)
        .observer((tracer(), ConsumerTracer::new("second")))
        .build(handling)
        .unwrap();
    consumer.run(queue.drained()).await.unwrap();
    let span = traces.one("process orders");
    assert_eq!(attribute(&span, "messaging.system").unwrap(), "memory");
    let ends = span.attributes.iter().filter(|own| own.key.as_str() == "idempotent.settlement").count();
    assert_eq!(ends, 2, "both observers saw the end: {:?}", span.attributes);
}
