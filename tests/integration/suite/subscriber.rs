//! The warning of a process without a `tracing` subscriber. Each case is a process of its own, because a process warns once.
use std::process::Command;

use axum::body::Body;
use axum::http::Request;
use idempotent::http::Principal;
use idempotent::mq::{Consumer, KeyFrom, MemoryQueue, Message, Messages};
use idempotent::{Executor, IdempotencyLayer, MemoryStore};
use tower::{ServiceBuilder, ServiceExt};

const WARNING: &str = "idempotent: no `tracing` subscriber is installed";

/// Runs one of the ignored tests below in a process, and returns what it writes to stderr.
fn stderr_of(test: &str) -> String {
    let mut child = Command::new(std::env::current_exe().unwrap());
    let output = child.args(["--exact", &format!("subscriber::{test}"), "--ignored", "--nocapture"]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn a_consumer_without_a_subscriber_warns_once() {
    assert_eq!(stderr_of("two_consumers").matches(WARNING).count(), 1);
}

#[test]
fn a_layer_without_a_subscriber_warns_at_its_first_request() {
    assert_eq!(stderr_of("two_requests").matches(WARNING).count(), 1);
}

#[test]
fn a_consumer_with_a_subscriber_does_not_warn() {
    assert_eq!(stderr_of("a_consumer_with_a_subscriber").matches(WARNING).count(), 0);
}

async fn consume() {
    let handling = Messages::raw().keyed(KeyFrom::message_id()).run(async |_: Message<()>| ());
    let executor = Executor::new(MemoryStore::new());
    let consumer = Consumer::builder(MemoryQueue::new("orders").source(), "billing", &executor).build(handling);
    consumer.unwrap().run(async {}).await.unwrap();
}

#[tokio::test]
#[ignore = "run in a process of its own"]
async fn two_consumers() {
    consume().await;
    consume().await;
}

#[tokio::test]
#[ignore = "run in a process of its own"]
async fn two_requests() {
    let layer = IdempotencyLayer::new(Executor::new(MemoryStore::new()), Principal::none());
    let service = ServiceBuilder::new().layer(layer).service(axum::Router::<()>::new());
    for key in ["a", "b"] {
        let request = Request::post("/").header("idempotency-key", key).body(Body::empty()).unwrap();
        service.clone().oneshot(request).await.unwrap();
    }
}

#[tokio::test]
#[ignore = "run in a process of its own"]
async fn a_consumer_with_a_subscriber() {
    tracing_subscriber::fmt().init();
    consume().await;
}
