//! The comparison of two requests with one key, and the response to a different payload.
use bytes::Bytes;
use http::Method;
use idempotent_core::Fingerprint;
use idempotent_tower::{PayloadCheck, ProblemKind};

use crate::layer::support::{Shop, World, order_by, secs};

fn checking(world: &World, check: PayloadCheck) -> Shop {
    world.shop_behind(world.layer().payload(check))
}

#[tokio::test]
async fn method_path_query_and_body_count_and_headers_do_not() {
    let world = World::new();
    let shop = world.shop();
    let first = order_by("a").to(Method::POST, "/orders?b=1");
    first.send(&shop).await.ran(1);
    let traced = first.clone().with("traceparent", "00-1").with("content-type", "text/plain").with("cookie", "x");
    traced.send(&shop).await.replays(1);
    for other in ["/orders?b=2", "/orders", "/orders?", "/orders?b=1&", "/orders?B=1"] {
        first.clone().to(Method::POST, other).send(&shop).await.problem(422, "key-reused");
    }
    for other in ["", " ", "{\"sku\":\"tea\"} ", "{ \"sku\":\"tea\"}", "{\"sku\":\"te\"}"] {
        first.clone().body(other).send(&shop).await.problem(422, "key-reused");
    }
}

#[tokio::test]
async fn the_boundaries_of_fingerprint_parts_count() {
    let world = World::new();
    let shop = world.shop();
    order_by("a").to(Method::POST, "/orders?x=1").body("23").send(&shop).await.ran(1);
    order_by("a").to(Method::POST, "/orders?x=12").body("3").send(&shop).await.problem(422, "key-reused");
}

#[tokio::test]
async fn json_can_be_compared_by_its_value() {
    let world = World::new();
    let shop = checking(&world, PayloadCheck::canonical_json().exclude("/sent_at").exclude("/meta/a~1b"));
    let by = |body: &'static str| order_by("a").body(body);
    by(r#"{"sku":"tea","qty":2,"sent_at":1,"meta":{"a/b":1,"c":3}}"#).send(&shop).await.ran(1);
    by(r#" { "meta": {"c":3,"a/b":2}, "qty" : 2, "sku":"\u0074ea"} "#).send(&shop).await.replays(1);
    for other in [
        r#"{"sku":"tea","qty":3,"meta":{"c":3}}"#,
        r#"{"sku":"tea","qty":2,"meta":{"c":4}}"#,
        r#"{"sku":"tea","qty":2,"meta":{"c":3},"x":null}"#,
        r#"{"sku":"tea","qty":2,"meta":{"c":3}"#,
        "",
    ] {
        by(other).send(&shop).await.problem(422, "key-reused");
    }
    by(r#"{"sku":"tea","qty":2,"meta":{"c":3}}"#)
        .to(Method::POST, "/orders?x")
        .send(&shop)
        .await
        .problem(422, "key-reused");
}

#[tokio::test]
async fn ambiguous_json_is_compared_by_its_bytes() {
    let pairs = [
        (r#"{"to":"ann","to":"bob"}"#, r#"{"to":"eve","to":"bob"}"#),
        ("[12345678901234567890123]", "[12345678901234567890124]"),
        ("[1.00000000000000000001]", "[1.0]"),
        ("{no json}", "{no  json}"),
    ];
    for (one, other) in pairs {
        let world = World::new();
        let shop = checking(&world, PayloadCheck::canonical_json());
        order_by("a").body(one).send(&shop).await.ran(1);
        order_by("a").body(one).send(&shop).await.replays(1);
        order_by("a").body(other).send(&shop).await.problem(422, "key-reused");
    }
}

#[tokio::test]
async fn a_function_can_compute_the_fingerprint_in_addition_to_method_and_path() {
    let world = World::new();
    let sku = |_: &http::request::Parts, body: &Bytes| {
        let body: serde_json::Value = serde_json::from_slice(body).ok()?;
        Some(Fingerprint::of_bytes(body.get("sku")?.as_str()?))
    };
    let shop = checking(&world, PayloadCheck::by(sku));
    let by = |body: &'static str| order_by("a").body(body).to(Method::PATCH, "/orders/1");
    by(r#"{"sku":"tea","qty":1}"#).send(&shop).await.ran(1);
    by(r#"{"sku":"tea","qty":2}"#).send(&shop).await.replays(1);
    by(r#"{"sku":"salt"}"#).send(&shop).await.problem(422, "key-reused");
    by(r#"{"sku":"tea"}"#).to(Method::PATCH, "/orders/2").send(&shop).await.problem(422, "key-reused");
    // A request without a fingerprint differs from one with a fingerprint.
    by("no JSON").send(&shop).await.problem(422, "key-reused");
}

#[tokio::test]
async fn without_a_fingerprint_of_the_function_method_path_and_query_count() {
    let world = World::new();
    let shop = checking(&world, PayloadCheck::by(|_, _| None));
    let first = order_by("a").to(Method::PATCH, "/orders/1?b=1");
    first.clone().send(&shop).await.ran(1);
    first.clone().body("another body").send(&shop).await.replays(1);
    for other in ["/orders/2?b=1", "/orders/1?b=2", "/orders/1"] {
        first.clone().to(Method::PATCH, other).send(&shop).await.problem(422, "key-reused");
    }
}

#[tokio::test]
async fn another_payload_is_rejected_before_a_duplicate_in_flight() {
    let world = World::new();
    let shop = world.shop();
    let slow = order_by("a").with("x-sleep", "1000");
    let first = slow.begin(&shop, &world.clock).await;
    let refused = order_by("a").body("other").send(&shop).await;
    refused.problem(422, "key-reused");
    assert_eq!((refused.retry_after(), refused.told()["retryable"].as_bool()), (None, Some(false)));
    assert!(refused.header("link").is_some_and(|link| link.contains("describedby")));
    world.clock.advance(secs(1)).await;
    first.await.unwrap().ran(1);
    let refused = order_by("a").body("other").send(&shop).await;
    refused.problem(422, "key-reused");
    assert!(refused.header("location").is_none() && !refused.body.starts_with(b"1:"), "nothing of the stored answer");
    slow.send(&shop).await.replays(1);
    assert_eq!(shop.runs(), 1);
}

#[tokio::test]
async fn a_mismatch_advises_to_repeat_the_request_before_it_advises_a_new_key() {
    let world = World::new();
    let shop = world.shop();
    order_by("a").body(r#"{"sku":"tea","qty":2}"#).send(&shop).await.ran(1);
    let refused = order_by("a").body(r#"{"qty":2,"sku":"tea"}"#).send(&shop).await;
    let told = refused.problem(422, "key-reused").told();
    let detail = told["detail"].as_str().unwrap();
    let place = |text: &str| detail.find(text).unwrap_or_else(|| panic!("`{text}` is not in: {detail}"));
    assert!(place("send it as it was sent first") < place("new key"));
    assert!(place("compression") < place("new key") && place("`canonical_json`") < place("new key"));
}

#[tokio::test]
async fn the_status_of_a_mismatch_is_configurable() {
    let world = World::new();
    let layer = world.layer().problem_response(|problem| {
        let mut response = problem.to_response();
        if problem.kind() == ProblemKind::KeyReused {
            *response.status_mut() = http::StatusCode::CONFLICT;
        }
        response
    });
    let shop = world.shop_behind(layer);
    order_by("a").send(&shop).await.ran(1);
    assert_eq!(order_by("a").body("other").send(&shop).await.status, 409);
}
