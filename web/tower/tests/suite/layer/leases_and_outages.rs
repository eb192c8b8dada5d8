//! Panics, leases, unavailable stores, and the retention of responses.
use idempotent_core::{OnLeaseLost, Policy};
use idempotent_testkit::{FOREVER, StoreOperation};

use crate::layer::support::{World, ms, order_by, secs};

#[tokio::test]
async fn a_panic_yields_500_frees_the_key_and_the_server_continues() {
    for cancel in [false, true] {
        for sleep in ["0", "1000"] {
            let world = World::new();
            let shop = world.shop_behind(world.layer().cancel_on_disconnect(cancel));
            let sent = order_by("a").with("x-sleep", sleep).with("x-panic", "1").begin(&shop, &world.clock).await;
            world.clock.advance(secs(1)).await;
            let sent = sent.await.unwrap();
            sent.problem(500, "handler-panicked");
            assert!(!sent.told()["detail"].as_str().unwrap().contains("as told"), "nothing of the panic's text");
            order_by("a").send(&shop).await.ran(2);
            order_by("a").send(&shop).await.replays(2);
        }
    }
}

#[tokio::test]
async fn a_lease_of_30_s_is_renewed_every_10_s() {
    let world = World::new();
    let shop = world.shop();
    let slow = order_by("a").with("x-sleep", "45000");
    let first = slow.begin(&shop, &world.clock).await;
    world.clock.advance(secs(45)).await;
    first.await.unwrap().ran(1);
    assert_eq!(renewals(&world), [10, 20, 30, 40]);
}

#[tokio::test]
async fn a_run_of_twelve_minutes_keeps_its_lease() {
    let world = World::new();
    let shop = world.shop();
    let first = order_by("a").with("x-sleep", "720000").begin(&shop, &world.clock).await;
    world.clock.advance(secs(660)).await;
    order_by("a").send(&shop).await.problem(409, "in-flight");
    world.clock.advance(secs(60)).await;
    first.await.unwrap().ran(1);
    order_by("a").send(&shop).await.replays(1);
}

fn renewals(world: &World) -> Vec<u64> {
    let log = world.store.log();
    log.iter().filter(|call| call.verb == StoreOperation::Renew).map(|call| call.started.as_secs()).collect()
}

#[tokio::test]
async fn lease_and_heartbeat_are_configurable() {
    let world = World::new();
    let shop = world.shop_behind(world.layer().lease(secs(10)).heartbeat(secs(4)));
    order_by("a").with("x-sleep", "13000").begin(&shop, &world.clock).await;
    world.clock.advance(secs(13)).await;
    assert_eq!(renewals(&world), [4, 8, 12]);
}

#[tokio::test]
async fn a_run_that_lost_its_lease_responds_and_stores_nothing() {
    let world = World::new();
    let shop = world.shop();
    world.store.fail_before(StoreOperation::Renew, FOREVER);
    let first = order_by("a").with("x-sleep", "60000").begin(&shop, &world.clock).await;
    world.clock.advance(secs(31)).await;
    let second = order_by("a").with("x-sleep", "5000").begin(&shop, &world.clock).await;
    world.clock.advance(secs(29)).await;
    second.await.unwrap().ran(2);
    first.await.unwrap().ran(1);
    order_by("a").send(&shop).await.replays(2);
}

#[tokio::test]
async fn a_handler_can_be_dropped_with_its_lease() {
    let world = World::new();
    let shop = world.shop_behind(world.layer().policy(Policy::new().on_lease_lost(OnLeaseLost::Abort)));
    world.store.fail_before(StoreOperation::Renew, FOREVER);
    let first = order_by("a").with("x-sleep", "60000").begin(&shop, &world.clock).await;
    world.clock.advance(secs(30)).await;
    let told = first.await.unwrap();
    assert_eq!(told.problem(503, "interrupted").retry_after(), Some(1));
}

#[tokio::test]
async fn check_rejects_an_invalid_policy_and_clients_see_no_details() {
    let world = World::new();
    let layer = world.layer().lease(secs(10)).heartbeat(secs(5));
    let error = layer.check().unwrap_err().to_string();
    assert!(error.contains("heartbeat is 5s") && error.contains("10s"), "{error}");
    assert!(world.layer().ttl(secs(30)).check().is_err());
    assert!(world.layer().wait(ms(0)).check().is_err());
    assert_eq!(world.layer().check(), Ok(()));
    let shop = world.shop_behind(layer);
    let told = order_by("a").send(&shop).await;
    told.problem(500, "misconfigured");
    assert!(!told.told().to_string().contains("heartbeat"));
    assert_eq!(shop.runs(), 0);
}

#[tokio::test]
async fn an_outage_during_the_run_does_not_affect_the_client() {
    let world = World::new();
    let shop = world.shop();
    let first = order_by("a").with("x-sleep", "1000").begin(&shop, &world.clock).await;
    world.store.down();
    world.clock.advance(secs(60)).await;
    first.await.unwrap().ran(1);
}

#[tokio::test]
async fn a_response_is_retained_for_24_h_after_completion() {
    let world = World::new();
    let shop = world.shop();
    let slow = order_by("a").with("x-sleep", "10000");
    slow.begin(&shop, &world.clock).await;
    world.clock.advance(secs(10)).await;
    world.clock.advance(secs(24 * 3600 - 1)).await;
    slow.send(&shop).await.replays(1);
    world.clock.advance(secs(1)).await;
    order_by("a").send(&shop).await.ran(2);
}

#[tokio::test]
async fn the_retention_is_configurable_by_route() {
    let world = World::new();
    let short = world.shop_behind(world.layer().ttl(secs(60)));
    let long = world.shop_behind(world.layer().namespace("long").ttl(Policy::FOREVER));
    order_by("a").send(&short).await.ran(1);
    order_by("a").send(&long).await.ran(1);
    world.clock.advance(secs(60)).await;
    order_by("a").send(&short).await.ran(2);
    world.clock.advance(secs(10 * 365 * 24 * 3600)).await;
    order_by("a").send(&long).await.replays(1);
}

#[tokio::test]
async fn the_policy_of_the_layer_overrides_that_of_the_executor() {
    let world = World::by(Policy::new().retain(secs(60)).lease(secs(5)));
    let shop = world.shop_behind(world.layer().lease(secs(9)));
    order_by("a").with("x-sleep", "4000").begin(&shop, &world.clock).await;
    world.clock.advance(secs(4)).await;
    assert_eq!(renewals(&world), [3], "every third of 9 s");
    world.clock.advance(secs(59)).await;
    order_by("a").send(&shop).await.replays(1);
    world.clock.advance(secs(1)).await;
    order_by("a").send(&shop).await.ran(2);
}
