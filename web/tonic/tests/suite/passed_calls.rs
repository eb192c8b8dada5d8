//! Calls that pass through untouched.
use futures_util::stream;
use tokio_stream::StreamExt;
use tonic::Request;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;
use tonic_reflection::pb::v1::ServerReflectionRequest;
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;

use crate::support::{TEA, World, is_replay, payment, with_key};

#[tokio::test]
async fn calls_without_a_key_run_each_time() {
    let world = World::new().await;
    for run in 1..=2 {
        let response = world.send(Request::new(payment("tea"))).await.unwrap();
        assert_eq!((response.get_ref().run, is_replay(&response)), (run, false));
    }
    assert!(world.shop.attempts.lock().unwrap().is_empty());
}

#[tokio::test]
async fn methods_that_pass_through_ignore_keys() {
    for methods in ["/shop.Orders/Pay", "/shop.Orders/*"] {
        let world = World::with(|layer| layer.pass_through([methods])).await;
        for run in 1..=2 {
            assert_eq!(world.pay("a", "tea").await.unwrap().get_ref().run, run);
        }
        // Not even a malformed key matters.
        assert_eq!(world.pay("a,b", "tea").await.unwrap().get_ref().run, 3);
    }
}

#[tokio::test]
async fn health_checks_and_reflection_pass_through() {
    let world = World::with(|layer| layer.require_key(["/shop.Orders/*"])).await;
    let mut health = HealthClient::new(world.channel.clone());
    let request = HealthCheckRequest { service: "shop.Orders".to_owned() };
    let status = health.check(request.clone()).await.unwrap().into_inner().status();
    assert_eq!(status.as_str_name(), "SERVING");
    let mut watch = health.watch(request).await.unwrap().into_inner();
    assert_eq!(watch.next().await.unwrap().unwrap().status().as_str_name(), "SERVING");
    let mut reflection = ServerReflectionClient::new(world.channel.clone());
    let list = MessageRequest::ListServices(String::new());
    let request = ServerReflectionRequest { host: String::new(), message_request: Some(list) };
    let mut answers = reflection.server_reflection_info(stream::iter([request])).await.unwrap().into_inner();
    let answer = format!("{:?}", answers.next().await.unwrap().unwrap());
    assert!(answer.contains("grpc.health.v1.Health"), "{answer}");
}

#[tokio::test]
async fn a_health_check_with_a_key_is_a_unary_call() {
    let world = World::new().await;
    let mut health = HealthClient::new(world.channel.clone());
    for replay in [false, true] {
        let request = with_key("a", HealthCheckRequest { service: "shop.Orders".to_owned() });
        assert_eq!(is_replay(&health.check(request).await.unwrap()), replay);
    }
}

#[tokio::test]
async fn requests_that_are_not_grpc_pass_through() {
    let world = World::new().await;
    let headers = [("content-type", "application/json"), ("idempotency-key", "a")];
    for run in 1..=2 {
        let sent = world.raw("/shop.Orders/Pay", &headers, TEA).await;
        assert!(!sent.headers.contains_key("idempotent-replayed"), "{sent:?}");
        assert_eq!(world.shop.runs(), run);
    }
}

#[tokio::test]
async fn a_grpc_web_call_with_a_key_is_refused() {
    let world = World::with(|layer| layer.require_key(["/shop.Orders/Pay"])).await;
    for kind in ["application/grpc-web", "application/grpc-web+proto", "application/grpc-web-text"] {
        for headers in [&[("content-type", kind), ("idempotency-key", "a")][..], &[("content-type", kind)]] {
            let sent = world.raw("/shop.Orders/Pay", headers, TEA).await;
            assert_eq!(sent.status(), Some("13"), "{sent:?}");
        }
    }
    assert_eq!(world.shop.runs(), 0);
}
