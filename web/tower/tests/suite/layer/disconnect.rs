//! Clients that disconnect.
use idempotent_testkit::StoreOperation;

use crate::layer::support::{World, order_by, secs};

#[tokio::test]
async fn the_handler_continues_without_its_client_and_a_retry_receives_the_response() {
    let world = World::new();
    let shop = world.shop();
    let slow = order_by("a").with("x-sleep", "5000");
    let gone = slow.begin(&shop, &world.clock).await;
    gone.abort();
    assert!(gone.await.is_err());
    slow.send(&shop).await.problem(409, "in-flight");
    world.clock.advance(secs(5)).await;
    slow.send(&shop).await.replays(1);
    assert_eq!(shop.runs(), 1);
}

#[tokio::test]
async fn the_request_continues_even_if_the_client_disconnects_during_the_claim() {
    let world = World::new();
    world.store.delay_reply(StoreOperation::Claim, secs(1));
    let shop = world.shop();
    let gone = order_by("a").begin(&shop, &world.clock).await;
    gone.abort();
    assert!(gone.await.is_err() && shop.runs() == 0);
    world.clock.advance(secs(1)).await;
    assert_eq!(shop.runs(), 1);
    world.store.heal();
    order_by("a").send(&shop).await.replays(1);
}

#[tokio::test]
async fn cancellation_before_the_handler_starts_frees_the_key() {
    let world = World::new();
    world.store.delay_reply(StoreOperation::Claim, secs(1));
    let shop = world.shop_behind(world.layer().cancel_on_disconnect(true));
    let gone = order_by("a").begin(&shop, &world.clock).await;
    gone.abort();
    assert!(gone.await.is_err());
    world.clock.advance(secs(2)).await;
    world.store.heal();
    assert_eq!(shop.runs(), 0);
    order_by("a").send(&shop).await.ran(1);
}

#[tokio::test]
async fn cancellation_while_the_handler_runs_leaves_the_key_to_its_lease() {
    let world = World::new();
    let shop = world.shop_behind(world.layer().cancel_on_disconnect(true));
    let slow = order_by("a").with("x-sleep", "5000");
    let gone = slow.begin(&shop, &world.clock).await;
    gone.abort();
    assert!(gone.await.is_err());
    world.clock.advance(secs(29)).await;
    slow.send(&shop).await.problem(409, "in-flight");
    world.clock.advance(secs(1)).await;
    order_by("a").send(&shop).await.ran(2);
    let attempts = shop.attempts.lock().unwrap().clone();
    assert!(attempts[1].is_retry() && attempts[1].taken_over() == Some(attempts[0].fencing()));
}

#[tokio::test]
async fn dropping_the_future_before_its_first_poll_has_no_effect() {
    use tower::ServiceExt;
    let world = World::new();
    let shop = world.shop();
    drop(shop.router().oneshot(order_by("a").request()));
    world.clock.settle().await;
    assert!(shop.runs() == 0 && world.is_untouched());
}
