//! N108 to N121, B18 and B19, each as its list has it; the decisions tell more.
use axum::Router;
use axum::body::Body;
use axum::response::Response;
use axum::routing::post;
use http::Method;
use idempotent_tower::{KeyRules, KeySyntax, ResponseRules, StorePolicy};

use crate::decisions::support::{Shop, World, ask, order_by, secs};

#[tokio::test]
async fn n108_a_missing_header_is_400_when_required_and_passes_when_optional() {
    let world = World::new();
    ask(Method::POST, "/orders").send(&world.shop()).await.problem(400, "missing-key");
    let optional = world.shop_behind(world.layer().required(false));
    ask(Method::POST, "/orders").send(&optional).await.ran(1);
}

#[tokio::test]
async fn n109_two_headers_are_400() {
    let world = World::new();
    let shop = world.shop();
    order_by("a").with("Idempotency-Key", "a").send(&shop).await.problem(400, "invalid-key");
    order_by("a").with("idempotency-key", "b").send(&shop).await.problem(400, "invalid-key");
    assert_eq!(shop.runs(), 0);
}

#[tokio::test]
async fn n110_empty_is_400_and_quoted_and_bare_are_taken() {
    let world = World::new();
    let shop = world.shop();
    for empty in ["", " ", "\"\""] {
        order_by(empty).send(&shop).await.problem(400, "invalid-key");
    }
    order_by("\"a\"").send(&shop).await.ran(1);
    order_by("a").send(&shop).await.replays(1);
    let strict = world.shop_behind(world.layer().key(KeyRules::default().syntax(KeySyntax::Structured)));
    order_by("a").send(&strict).await.problem(400, "invalid-key");
}

#[tokio::test]
async fn n111_more_than_255_characters_are_400() {
    let world = World::new();
    let told = order_by(&"k".repeat(256)).send(&world.shop()).await;
    let detail = told.problem(400, "invalid-key").told()["detail"].as_str().unwrap().to_owned();
    assert!(detail.contains("256") && detail.contains("255"), "{detail}");
}

#[tokio::test]
async fn n112_control_bytes_are_400() {
    let world = World::new();
    let shop = world.shop();
    // A header holds no other control byte than the tab; bytes from 0x80 on it does.
    for value in [&b"a\tb"[..], b"\"a\tb\"", b"a\x80", b"\"\x80\"", b"\xff\xfe", b"a\xc2\xa0b"] {
        order_by("x").replaced(value).send(&shop).await.problem(400, "invalid-key");
    }
    assert_eq!(shop.runs(), 0);
}

#[tokio::test]
async fn n113_the_same_key_with_another_body_is_422() {
    let world = World::new();
    let shop = world.shop();
    order_by("a").send(&shop).await.ran(1);
    order_by("a").body("other").send(&shop).await.problem(422, "key-reused");
}

#[tokio::test]
async fn n114_another_method_template_or_user_is_separate_and_another_path_is_422() {
    let world = World::new();
    let shop = world.shop();
    let first = order_by("a").to(Method::POST, "/orders/1");
    first.send(&shop).await.ran(1);
    first.clone().to(Method::PATCH, "/orders/1").send(&shop).await.ran(2);
    first.clone().to(Method::POST, "/orders").send(&shop).await.ran(3);
    first.clone().user("ann").send(&shop).await.ran(4);
    first.clone().to(Method::POST, "/orders/2").send(&shop).await.problem(422, "key-reused");
}

#[tokio::test]
async fn n115_a_concurrent_one_is_409_with_retry_after() {
    let world = World::new();
    let shop = world.shop();
    let first = order_by("a").with("x-sleep", "100").begin(&shop, &world.clock).await;
    assert!(order_by("a").send(&shop).await.problem(409, "in-flight").retry_after().is_some());
    world.clock.advance(secs(1)).await;
    first.await.unwrap().ran(1);
}

#[tokio::test]
async fn n116_5xx_is_not_stored_and_4xx_by_policy() {
    let world = World::new();
    let shop = world.shop();
    for status in ["500", "404"] {
        let ask = order_by(status).with("x-status", status);
        ask.send(&shop).await;
        assert!(!ask.send(&shop).await.is_replay());
    }
    let last = world.shop_behind(world.layer().response(ResponseRules::default().store(StorePolicy::Final)));
    let ask = order_by("last").with("x-status", "404");
    ask.send(&last).await.ran(1);
    ask.send(&last).await.replays(1);
}

#[tokio::test]
async fn n117_a_handler_whose_client_is_gone_finishes() {
    let world = World::new();
    let shop = world.shop();
    let gone = order_by("a").with("x-sleep", "1000").begin(&shop, &world.clock).await;
    gone.abort();
    world.clock.advance(secs(1)).await;
    order_by("a").send(&shop).await.replays(1);
}

#[tokio::test]
async fn n118_a_stream_of_events_is_not_replayed_and_not_run_again() {
    let world = World::new();
    let events = async || {
        let events = futures_util::stream::iter(["data: 1\n\n", "data: 2\n\n"].map(Ok::<_, std::io::Error>));
        Response::builder().header("content-type", "text/event-stream").body(Body::from_stream(events)).unwrap()
    };
    let shop = Shop::of(Router::new().route("/orders", post(events)).layer(world.layer()));
    assert_eq!(&order_by("a").send(&shop).await.body[..], b"data: 1\n\ndata: 2\n\n");
    order_by("a").send(&shop).await.problem(409, "response-not-retained");
}

#[tokio::test]
async fn n119_set_cookie_authorization_and_date_are_never_in_a_replay() {
    let world = World::new();
    let handler = async || [("set-cookie", "a=b"), ("authorization", "c"), ("date", "d"), ("x-e", "e")];
    let shop = Shop::of(Router::new().route("/orders", post(handler)).layer(world.layer()));
    assert_eq!(order_by("a").send(&shop).await.header("set-cookie"), Some("a=b"));
    let replay = order_by("a").send(&shop).await;
    assert_eq!(
        ["set-cookie", "authorization", "date", "x-e"].map(|name| replay.header(name)),
        [None, None, None, Some("e")]
    );
}

#[tokio::test]
async fn n120_a_caller_without_a_name_gets_nobody_elses_answer() {
    let world = World::new();
    let shop = world.shop();
    order_by("a").user("ann").send(&shop).await.ran(1);
    order_by("a").send(&shop).await.ran(2);
    order_by("a").user("").send(&shop).await.problem(401, "no-principal");
}

#[tokio::test]
async fn n121_head_get_and_options_do_nothing() {
    let world = World::new();
    let shop = world.shop();
    for method in [Method::HEAD, Method::GET, Method::OPTIONS] {
        order_by("a").to(method, "/orders").send(&shop).await;
    }
    assert!(shop.runs() == 3 && world.is_untouched());
}

#[tokio::test]
async fn b18_keys_callers_and_routes_that_run_over_into_each_other_are_distinct() {
    let world = World::new();
    let shop = world.shop();
    let asks = [
        order_by("b:c").user("a"),
        order_by("c").user("a:b"),
        order_by("a:b:c"),
        order_by("\"{a}\""),
        order_by("{a"),
        order_by("\"a}\""),
        order_by("*"),
        order_by("a").to(Method::POST, "/orders/a"),
        order_by("orders/a").to(Method::POST, "/orders"),
        order_by("a").to(Method::POST, "/baskets"),
    ];
    for (run, ask) in (1..).zip(&asks) {
        ask.send(&shop).await.ran(run);
    }
    for (run, ask) in (1..).zip(&asks) {
        ask.send(&shop).await.replays(run);
    }
}

#[tokio::test]
async fn b18_keys_from_the_body_may_have_braces_newlines_and_nul_and_not_a_mebibyte() {
    let world = World::new();
    let layer = world
        .layer()
        .key(KeyRules::default().max_len(usize::MAX))
        .key_from(|parts, _| Some(parts.uri.query()?.replace("%0A", "\n").replace("%00", "\0")));
    let shop = world.shop_behind(layer.payload(idempotent_tower::PayloadCheck::by(|_, _| None)));
    let by = |query: &str| ask(Method::POST, &format!("/orders?{query}"));
    for (run, query) in (1..).zip(["{}", "a%0A", "a%0Ab", "a%00", "a", "%00a"]) {
        let query = query.replace('{', "%7B").replace('}', "%7D");
        by(&query).send(&shop).await.ran(run);
        by(&query).send(&shop).await.replays(run);
    }
    let told = by(&"k".repeat(60_000)).send(&shop).await;
    let detail = told.problem(400, "invalid-key").told()["detail"].as_str().unwrap().to_owned();
    assert!(detail.contains("60000 bytes") && detail.contains("1024"), "{detail}");
    by("").send(&shop).await.problem(400, "invalid-key");
}

#[tokio::test]
async fn b19_another_payload_is_422_in_flight_and_consumed() {
    let world = World::new();
    let shop = world.shop();
    let first = order_by("a").with("x-sleep", "1000").begin(&shop, &world.clock).await;
    order_by("a").body("other").send(&shop).await.problem(422, "key-reused");
    world.clock.advance(secs(1)).await;
    first.await.unwrap().ran(1);
    order_by("a").body("other").send(&shop).await.problem(422, "key-reused");
    assert_eq!(shop.runs(), 1);
}
