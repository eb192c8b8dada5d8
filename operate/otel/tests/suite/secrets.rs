//! No span contains a key, a payload, a message id or a header value.
use idempotent_core::{Executor, MemoryStore, Policy, Scene, Tracing};
use idempotent_mq::{MemoryQueue, OutboundMessage, Publish};
use idempotent_otel::{ConsumerTracer, ProducerTracer, RunTracer};

use crate::world::{Broker, Traces, consume_with, delivery};

const SECRET: &str = "4111-1111-1111-1111";

#[tokio::test]
async fn no_span_contains_a_planted_secret() {
    let traces = Traces::start();
    let queue = MemoryQueue::new("orders");
    let policy = Policy::new().max_retries(0);
    let executor = Executor::builder(MemoryStore::new()).policy(Scene::Mq, policy);
    let executor = executor.observer((Tracing, RunTracer::new())).build().unwrap();
    for body in ["done", "done", "never", SECRET] {
        let id = format!("{SECRET}-{body}");
        let delivery = delivery(&id, body).business_key(SECRET).header("x-card", SECRET);
        queue.send_delivery(delivery.header("traceparent", SECRET).header("tracestate", SECRET));
    }
    let mut undecodable = delivery(SECRET, SECRET);
    undecodable.body = [SECRET.as_bytes(), &[0xff]].concat();
    queue.send_delivery(undecodable);
    let counts = consume_with(&queue, ConsumerTracer::new("memory"), &executor).await;
    assert_eq!((counts.acked, counts.dead_lettered), (3, 2));
    let tracer = ProducerTracer::new("memory");
    let message = || OutboundMessage::new("refused", SECRET, SECRET).business_key(SECRET).aggregate(SECRET);
    let message = || message().header("x-card", SECRET).header("traceparent", SECRET);
    assert!(tracer.publisher(Broker::default()).publish(&[message(), tracer.create(message())]).await[0].is_err());
    let spans = traces.ended();
    assert!(spans.len() > 10, "{}", spans.len());
    let shown = format!("{spans:?}");
    assert!(!shown.contains("4111-1111"), "{shown}");
}
