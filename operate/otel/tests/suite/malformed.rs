//! Malformed trace context in messages.
use idempotent_mq::{MemoryQueue, OutboundMessage};
use idempotent_otel::{ConsumerTracer, ProducerTracer};
use opentelemetry::trace::SpanId;

use crate::world::{Traces, attribute, consume, delivery, header, id, links, service_span, traceparent};

const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

#[tokio::test]
async fn a_malformed_header_starts_a_new_trace_and_the_message_runs() {
    let traces = Traces::start();
    let hostile: Vec<Vec<u8>> = vec![
        Vec::new(),
        vec![0xff; 55],
        vec![b'0'; 100_000],
        format!("00-{}-{}-01", "0".repeat(32), "0".repeat(16)).into(),
        PARENT.replace("4bf9", "4BF9").into(),
        PARENT.replace("4bf9", "zzzz").into(),
        PARENT.replacen("00", "ff", 1).into(),
        format!("{PARENT}\r\ntraceparent: {PARENT}").into(),
    ];
    let queue = MemoryQueue::new("orders");
    for (number, value) in hostile.iter().enumerate() {
        let delivery = delivery(&format!("m-{number}"), "done").header("traceparent", value.clone());
        queue.send_delivery(delivery.header("tracestate", vec![b','; 1_000_000]));
    }
    let counts = consume(&queue, ConsumerTracer::new("memory")).await;
    let spans = traces.all("process orders");
    assert_eq!((counts.acked, spans.len()), (hostile.len() as u64, hostile.len()));
    for span in spans {
        assert_eq!((span.parent_span_id, span.links.len()), (SpanId::INVALID, 0));
        assert_eq!(attribute(&span, "idempotent.trace_context").unwrap(), "invalid");
    }
}

#[tokio::test]
async fn the_first_valid_of_several_headers_is_the_parent() {
    let traces = Traces::start();
    let queue = MemoryQueue::new("orders");
    let other = PARENT.replace("00f067aa0ba902b7", "1111111111111111");
    let delivery = delivery("m-1", "done").header("traceparent", "bad").header("traceparent", PARENT);
    queue.send_delivery(delivery.header("traceparent", other));
    let _ = consume(&queue, ConsumerTracer::new("memory")).await;
    let span = traces.one("process orders");
    assert_eq!(span.parent_span_id.to_string(), "00f067aa0ba902b7");
    assert_eq!((links(&span).len(), attribute(&span, "idempotent.trace_context")), (1, None));
}

#[test]
fn a_message_keeps_a_valid_context_and_loses_a_malformed_one() {
    let traces = Traces::start();
    let tracer = ProducerTracer::new("memory");
    let message = || OutboundMessage::new("orders", "m-1", "done");
    let forwarded = tracer.create(message().header("traceparent", PARENT).header("tracestate", "a=1"));
    assert_eq!(header(&forwarded, "traceparent").unwrap(), PARENT);
    assert_eq!(header(&forwarded, "tracestate").unwrap(), "a=1");
    assert!(traces.ended().is_empty(), "a span for a message that has a context");
    let request = service_span("request");
    let replaced = request.in_scope(|| {
        tracer.create(message().header("traceparent", "bad").header("tracestate", "a=1").header("b", "2"))
    });
    drop(request);
    let create = traces.one("create orders");
    assert_eq!(create.parent_span_id, id(&traces.one("request")));
    assert_eq!(header(&replaced, "traceparent").unwrap(), traceparent(&create));
    assert_eq!((header(&replaced, "tracestate"), header(&replaced, "b")), (None, Some("2".to_owned())));
}

#[test]
fn a_trace_state_from_a_message_cannot_write_headers_of_later_messages() {
    let traces = Traces::start();
    let tracer = ProducerTracer::new("memory");
    let queue = MemoryQueue::new("orders");
    let hostile = "a=1\r\nx-admin: yes";
    queue.send_delivery(delivery("m-1", "done").header("traceparent", PARENT).header("tracestate", hostile));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let created = std::sync::Arc::new(std::sync::Mutex::new(None));
    runtime.block_on(async {
        let executor = idempotent_core::Executor::new(idempotent_core::MemoryStore::new());
        let keep = created.clone();
        let handling = idempotent_mq::Messages::raw().keyed(idempotent_mq::KeyFrom::message_id()).run(
            move |_: idempotent_mq::Message<()>| {
                *keep.lock().unwrap() = Some(tracer.create(OutboundMessage::new("next", "m-2", "")));
                async { Ok::<_, &str>(()) }
            },
        );
        let builder = idempotent_mq::Consumer::builder(queue.source(), "billing", &executor);
        let consumer = builder.observer(ConsumerTracer::new("memory")).build(handling).unwrap();
        consumer.run(queue.drained()).await.unwrap();
    });
    let created = created.lock().unwrap().take().unwrap();
    let create = traces.one("create next");
    assert_eq!(create.span_context.trace_id().to_string(), "4bf92f3577b34da6a3ce929d0e0e4736", "the trace goes on");
    assert_eq!(header(&created, "traceparent").unwrap(), traceparent(&create));
    assert_eq!(header(&created, "tracestate"), None);
}
