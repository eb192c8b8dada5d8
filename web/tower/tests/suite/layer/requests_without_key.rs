//! Requests without a key, compared by their content.
use http::Method;
use idempotent_tower::{IdempotencyLayer, PayloadCheck};

use crate::layer::support::{Ask, Shop, World, ask, by_user, ms, secs};

fn by_params(world: &World, more: impl FnOnce(IdempotencyLayer) -> IdempotencyLayer) -> Shop {
    world.shop_behind(more(IdempotencyLayer::by_param(world.executor.clone(), by_user())))
}

fn order() -> Ask {
    ask(Method::POST, "/orders")
}

#[tokio::test]
async fn an_equal_request_within_five_seconds_of_completion_is_rejected() {
    let world = World::new();
    let shop = by_params(&world, |layer| layer);
    let first = order().with("x-sleep", "3000").begin(&shop, &world.clock).await;
    world.clock.advance(secs(3)).await;
    first.await.unwrap().ran(1);
    world.clock.advance(ms(1_500)).await;
    let told = order().send(&shop).await;
    told.problem(409, "duplicate-request");
    assert_eq!(told.retry_after(), Some(4), "the rest of the window, from its end");
    world.clock.advance(ms(3_499)).await;
    assert_eq!(order().send(&shop).await.problem(409, "duplicate-request").retry_after(), Some(1));
    world.clock.advance(ms(1)).await;
    order().send(&shop).await.ran(2);
}

#[tokio::test]
async fn callers_routes_and_payloads_are_separate() {
    let world = World::new();
    let shop = by_params(&world, |layer| layer);
    order().send(&shop).await.ran(1);
    order().user("ann").send(&shop).await.ran(2);
    order().body("other").send(&shop).await.ran(3);
    order().to(Method::POST, "/baskets").send(&shop).await.ran(4);
    order().to(Method::POST, "/orders/1").send(&shop).await.ran(5);
    order().to(Method::POST, "/orders/2").send(&shop).await.ran(6);
    order().to(Method::POST, "/orders?x").send(&shop).await.ran(7);
    order().to(Method::GET, "/orders").send(&shop).await.ran(8);
    order().to(Method::GET, "/orders").send(&shop).await.ran(9);
    order().with("idempotency-key", "means nothing here").send(&shop).await.problem(409, "duplicate-request");
}

#[tokio::test]
async fn window_message_and_replay_are_configurable() {
    let world = World::new();
    let shop = by_params(&world, |layer| layer.window(secs(60)).message("too fast, try later"));
    let first = order().with("x-sleep", "1000").begin(&shop, &world.clock).await;
    assert_eq!(order().send(&shop).await.problem(409, "in-flight").told()["detail"], "too fast, try later");
    world.clock.advance(secs(1)).await;
    first.await.unwrap();
    world.clock.advance(secs(59)).await;
    assert_eq!(order().send(&shop).await.problem(409, "duplicate-request").told()["detail"], "too fast, try later");
    world.clock.advance(secs(1)).await;
    order().send(&shop).await.ran(2);

    let shop = by_params(&world, |layer| layer.namespace("replaying").replay(true));
    order().send(&shop).await.ran(1);
    order().send(&shop).await.replays(1);
    world.clock.advance(secs(5)).await;
    order().send(&shop).await.ran(2);
}

#[tokio::test]
async fn the_payload_check_is_configurable_and_no_fingerprint_is_no_key() {
    let world = World::new();
    let shop = by_params(&world, |layer| layer.payload(PayloadCheck::canonical_json()));
    order().body(r#"{"a":1,"b":2}"#).send(&shop).await.ran(1);
    order().body(r#"{"b":2, "a":1}"#).send(&shop).await.problem(409, "duplicate-request");
    let shop = by_params(&world, |layer| layer.namespace("none").payload(PayloadCheck::by(|_, _| None)));
    order().send(&shop).await.problem(400, "invalid-body");
    assert_eq!(shop.runs(), 0);
}
