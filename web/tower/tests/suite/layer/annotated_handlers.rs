//! The rules of the layer, applied to annotated handlers. See `attribute` for more.
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

use axum::Router;
use axum::extract::Request;
use axum::routing::post;
use http::HeaderMap;
use idempotent_core::{Clock, Executor};
use idempotent_macros::idempotent;
use idempotent_testkit::{FOREVER, StoreOperation, VirtualClock};
use idempotent_tower::{Http, IdempotencyKey};

use crate::layer::support::{Shop, World, ask, order_by, secs};

static RUNS: AtomicU32 = AtomicU32::new(0);

#[idempotent(scene = rest, key = key, with = executor, tenant = (), fingerprint = (), reply = Http, detach, crate = ::idempotent_core)]
async fn create(
    executor: Executor,
    clock: VirtualClock,
    key: IdempotencyKey,
    headers: HeaderMap,
) -> impl axum::response::IntoResponse {
    RUNS.fetch_add(1, SeqCst);
    let number = |name: &str| headers.get(name).map_or(0, |text| text.to_str().unwrap().parse().unwrap());
    clock.sleep_until(clock.now() + secs(number("x-sleep"))).await;
    format!("1:{}", "x".repeat(usize::try_from(number("x-size")).unwrap()))
}

fn shop(world: &World) -> Shop {
    let (executor, clock) = (world.executor.clone(), world.clock.clone());
    let handler = move |key: IdempotencyKey, request: Request| {
        let (executor, clock, headers) = (executor.clone(), clock.clone(), request.into_parts().0.headers);
        create(executor, clock, key, headers)
    };
    Shop::of(Router::new().route("/orders", post(handler)))
}

#[tokio::test]
async fn an_annotated_handler_stores_a_mebibyte_to_the_byte() {
    let world = World::new();
    let shop = shop(&world);
    let ask = order_by("a").with("x-size", ((1 << 20) - 2).to_string());
    ask.send(&shop).await.ran(1);
    assert_eq!(ask.send(&shop).await.replays(1).body.len(), 1 << 20);
    let ask = order_by("b").with("x-size", ((1 << 20) - 1).to_string());
    ask.send(&shop).await.ran(1);
    ask.send(&shop).await.problem(409, "response-not-retained");
}

#[tokio::test]
async fn the_limit_of_the_executor_overrides_the_strategy() {
    let world = World::by(idempotent_core::Policy::new().max_result(100));
    let shop = shop(&world);
    let ask = order_by("c").with("x-size", "200");
    ask.send(&shop).await.ran(1);
    ask.send(&shop).await.problem(409, "response-not-retained");
}

#[tokio::test]
async fn an_annotated_handler_that_lost_its_lease_responds_to_its_client() {
    let world = World::new();
    let shop = shop(&world);
    world.store.fail_before(StoreOperation::Renew, FOREVER);
    let first = order_by("late").with("x-sleep", "60").begin(&shop, &world.clock).await;
    world.clock.advance(secs(60)).await;
    first.await.unwrap().ran(1);
}

#[tokio::test]
async fn an_extractor_rejects_a_missing_key_with_a_link() {
    let world = World::new();
    let told = ask(http::Method::POST, "/orders").send(&shop(&world)).await;
    assert!(told.problem(400, "missing-key").header("link").is_some_and(|link| link.contains("describedby")));
}
