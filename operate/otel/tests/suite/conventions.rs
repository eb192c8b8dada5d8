//! The contents of spans: names of the published conventions, and no key, payload, message id or header value.
use std::collections::BTreeSet;

use idempotent_core::{Executor, MemoryStore, Policy, Scene, Tracing};
use idempotent_mq::{MemoryQueue, OutboundMessage, Publish};
use idempotent_otel::{ConsumerTracer, ProducerTracer, RunTracer, SEMCONV_VERSION};
use opentelemetry_semantic_conventions::{SCHEMA_URL, attribute};

use crate::world::{Broker, Traces, consume_with, delivery, traced};

/// The attributes of this project. Their names are part of its interface.
const OWN: [&str; 9] = [
    "idempotent.attempt",
    "idempotent.duplicate",
    "idempotent.key_hash",
    "idempotent.link",
    "idempotent.outcome",
    "idempotent.scene",
    "idempotent.scope",
    "idempotent.settlement",
    "idempotent.trace_context",
];
/// The fields of the core's span.
const OF_THE_RUN: [&str; 6] = ["scene", "scope", "key", "attempt", "fencing", "outcome"];
/// The attributes that the layer adds to each span.
const OF_THE_LAYER: [&str; 4] = ["busy_ns", "idle_ns", "target", "level"];

#[tokio::test]
async fn all_names_are_those_of_the_conventions_or_listed() {
    let traces = Traces::start();
    let queue = MemoryQueue::new("orders");
    let executor = traced();
    for body in ["done", "done", "never"] {
        queue.send_delivery(delivery(body, body).header("traceparent", "bad"));
        let _ = consume_with(&queue, ConsumerTracer::new("memory").message_ids(true), &executor).await;
    }
    let messages = ["a", "refused"].map(|topic| OutboundMessage::new(topic, topic, ""));
    let _ = ProducerTracer::new("memory").publisher(Broker::default()).publish(&messages).await;
    let conventional = [
        attribute::ERROR_TYPE,
        attribute::MESSAGING_BATCH_MESSAGE_COUNT,
        attribute::MESSAGING_CONSUMER_GROUP_NAME,
        attribute::MESSAGING_DESTINATION_NAME,
        attribute::MESSAGING_DESTINATION_PARTITION_ID,
        attribute::MESSAGING_MESSAGE_BODY_SIZE,
        attribute::MESSAGING_MESSAGE_ID,
        attribute::MESSAGING_OPERATION_NAME,
        attribute::MESSAGING_OPERATION_TYPE,
        attribute::MESSAGING_SYSTEM,
    ];
    let spans = traces.ended();
    let of_links = spans.iter().flat_map(|span| span.links.iter()).flat_map(|link| &link.attributes);
    let names: BTreeSet<_> =
        spans.iter().flat_map(|span| &span.attributes).chain(of_links).map(|own| own.key.as_str()).collect();
    let is_ours = |name: &str| OWN.contains(&name) || OF_THE_RUN.contains(&name) || conventional.contains(&name);
    let is_the_layers =
        |name: &str| OF_THE_LAYER.contains(&name) || name.starts_with("code.") || name.starts_with("thread.");
    let unknown: Vec<_> = names.iter().filter(|name| !is_ours(name) && !is_the_layers(name)).collect();
    assert!(unknown.is_empty(), "{unknown:?}");
    let unused: Vec<_> = OWN.iter().chain(&conventional).filter(|name| !names.contains(**name)).collect();
    assert!(unused.is_empty(), "{unused:?}");
    assert!(SCHEMA_URL.ends_with(&format!("/{SEMCONV_VERSION}")), "{SCHEMA_URL}");
}

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
