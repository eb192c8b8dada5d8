//! Duplicates of a running request: 409 at once, after a wait, and during a drain.
use idempotent_core::Policy;
use idempotent_testkit::StoreOperation;

use crate::layer::support::{World, ms, order_by, secs};

#[tokio::test]
async fn a_duplicate_in_flight_receives_retry_after_at_once() {
    let world = World::new();
    let shop = world.shop();
    let slow = order_by("a").with("x-sleep", "60000");
    let first = slow.begin(&shop, &world.clock).await;
    let told = slow.send(&shop).await;
    told.problem(409, "in-flight");
    assert_eq!((told.retry_after(), told.told()["retryable"].as_bool()), (Some(1), Some(true)));
    let hints: Vec<_> = {
        let mut hints = Vec::new();
        for _ in 0..5 {
            hints.push(slow.send(&shop).await.retry_after().unwrap());
        }
        hints
    };
    assert_eq!(hints, [2, 4, 8, 10, 10], "grows with each try, up to its limit");
    world.clock.advance(secs(60)).await;
    first.await.unwrap().ran(1);
    slow.send(&shop).await.replays(1);
}

#[tokio::test]
async fn retry_after_is_rounded_up_and_never_longer_than_the_lease() {
    let world = World::by(Policy::new().in_flight_delay(ms(1_100)).lease(secs(3)));
    let shop = world.shop();
    let slow = order_by("a").with("x-sleep", "2500");
    let first = slow.begin(&shop, &world.clock).await;
    assert_eq!(slow.send(&shop).await.retry_after(), Some(2), "1.1 s");
    assert_eq!(slow.send(&shop).await.retry_after(), Some(3), "2.2 s");
    assert_eq!(slow.send(&shop).await.retry_after(), Some(3), "not 4.4 s: the lease ends before");
    world.clock.advance(secs(3)).await;
    first.await.unwrap().ran(1);
}

#[tokio::test]
async fn a_duplicate_may_wait_for_the_response() {
    let world = World::new();
    let shop = world.shop_behind(world.layer().wait(secs(2)));
    let slow = order_by("a").with("x-sleep", "1500");
    let first = slow.begin(&shop, &world.clock).await;
    let second = slow.begin(&shop, &world.clock).await;
    world.clock.advance(ms(1_499)).await;
    let claims = |world: &World| world.store.log().iter().filter(|call| call.verb == StoreOperation::Claim).count();
    assert!(!second.is_finished());
    assert_eq!(claims(&world), 3, "told, not polling: its claim, and one as the watch began");
    world.clock.advance(ms(1)).await;
    let (first, second) = (first.await.unwrap(), second.await.unwrap());
    first.ran(1);
    second.replays(1);
    assert_eq!((&first.body, first.status), (&second.body, second.status));
}

#[tokio::test]
async fn a_waiting_duplicate_receives_retry_after_at_its_limit_and_the_owner_continues() {
    let world = World::new();
    let shop = world.shop_behind(world.layer().wait(ms(3_100)));
    let slow = order_by("a").with("x-sleep", "5000");
    let owner = slow.begin(&shop, &world.clock).await;
    let waiter = slow.begin(&shop, &world.clock).await;
    world.clock.advance(ms(3_099)).await;
    assert!(!waiter.is_finished());
    world.clock.advance(ms(1)).await;
    waiter.await.unwrap().problem(409, "in-flight");
    world.clock.advance(ms(300)).await;
    let late = slow.begin(&shop, &world.clock).await;
    world.clock.advance(ms(1_600)).await;
    owner.await.unwrap().ran(1);
    late.await.unwrap().replays(1);
    assert_eq!(shop.runs(), 1);
}

#[tokio::test]
async fn if_the_owner_fails_exactly_one_waiting_duplicate_takes_over() {
    let world = World::new();
    let shop = world.shop_behind(world.layer().wait(secs(10)));
    let failing = order_by("a").with("x-sleep", "1000").with("x-status", "500");
    let owner = failing.begin(&shop, &world.clock).await;
    let good = order_by("a").with("x-sleep", "500");
    let mut waiters = Vec::new();
    for _ in 0..20 {
        waiters.push(good.begin(&shop, &world.clock).await);
    }
    world.clock.advance(ms(1_100)).await;
    assert_eq!((owner.await.unwrap().status, shop.runs()), (500, 2));
    world.clock.advance(ms(500)).await;
    let mut replays = 0;
    for waiter in waiters {
        let sent = waiter.await.unwrap();
        assert!(sent.body.starts_with(b"2:"), "{sent:?}");
        replays += u32::from(sent.is_replay());
    }
    assert_eq!((replays, shop.runs()), (19, 2));
}

#[tokio::test]
async fn a_drain_lets_runs_finish_cuts_off_long_ones_and_starts_none() {
    let world = World::new();
    let shop = world.shop();
    let mut runs = Vec::new();
    for (key, sleep) in [("a", "2000"), ("b", "2000"), ("c", "60000")] {
        runs.push(order_by(key).with("x-sleep", sleep).begin(&shop, &world.clock).await);
    }
    let executor = world.executor.clone();
    let drained = tokio::spawn(async move { executor.drain(secs(5)).await });
    world.clock.settle().await;
    let refused = order_by("d").send(&shop).await;
    refused.problem(503, "draining");
    assert_eq!((refused.retry_after(), shop.runs()), (Some(1), 3));
    order_by("a").send(&shop).await.problem(503, "draining");
    world.clock.advance(secs(2)).await;
    let cut_off = runs.pop().unwrap();
    for (run, sent) in runs.into_iter().enumerate() {
        sent.await.unwrap().ran(u32::try_from(run).unwrap() + 1);
    }
    assert!(!drained.is_finished() && !cut_off.is_finished());
    world.clock.advance(secs(3)).await;
    let drained = drained.await.unwrap();
    assert_eq!((drained.finished, drained.abandoned), (2, 1));
    let told = cut_off.await.unwrap();
    told.problem(503, "draining");
    let detail = told.told()["detail"].to_string();
    assert!(!detail.contains("not handled") && !detail.contains("did not apply"), "its effect is unknown: {detail}");
    assert!(world.store.log().iter().all(|call| call.verb != StoreOperation::Release), "it is left to its lease");
}
