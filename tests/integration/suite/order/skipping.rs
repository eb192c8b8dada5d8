//! Stream numbers that may be skipped if absent, but not if present.
use super::sequence::{begin, comes, register};
use super::*;

on_all_stores! {
    a_stream_that_was_away_for_longer_than_its_time_runs_in_order_when_it_comes_back
    a_number_that_waited_and_was_lost_is_missing_once_it_was_not_delivered_for_its_time
    a_number_that_skips_waits_for_all_before_it_that_are_there
    a_number_that_skips_waits_for_one_that_is_retried
    a_number_that_skips_waits_for_one_that_was_killed
}

async fn a_stream_that_was_away_for_longer_than_its_time_runs_in_order_when_it_comes_back(world: World) {
    let (worker, _) = alerting(&world, OnBrokenOrder::Skip(secs(60)));
    let job = Job::takes(ms(0));
    register(&worker, "ann", &[1, 2, 3, 4]).await;
    for number in [2, 3, 4] {
        assert_waiting(&comes(&worker, "ann", number, &job).await);
    }
    // No message was delivered for a long time, and the last one arrives first.
    world.clock.advance(secs(300)).await;
    for number in [4, 3] {
        assert_waiting(&comes(&worker, "ann", number, &job).await);
    }
    assert_eq!(job.runs(), 0);
    for number in [2, 3, 4] {
        assert_eq!(comes(&worker, "ann", number, &job).await, Outcome::Ran);
    }
    assert_eq!(worker.executor.counts().late(), 0);
}

async fn a_number_that_waited_and_was_lost_is_missing_once_it_was_not_delivered_for_its_time(world: World) {
    let (worker, _) = alerting(&world, OnBrokenOrder::Skip(secs(60)));
    let job = Job::takes(ms(0));
    register(&worker, "ann", &[1, 2, 3]).await;
    for number in [2, 3] {
        assert_waiting(&comes(&worker, "ann", number, &job).await);
    }
    for _ in 0..5 {
        world.clock.advance(secs(15) - ms(1)).await;
        assert_waiting(&comes(&worker, "ann", 3, &job).await);
    }
    // Its time, and a fourth part of it more: so exactly is it noted when a number is delivered.
    world.clock.advance(ms(5)).await;
    assert_eq!(comes(&worker, "ann", 3, &job).await, Outcome::Ran);
}

async fn a_number_that_skips_waits_for_all_before_it_that_are_there(world: World) {
    let (worker, _) = alerting(&world, OnBrokenOrder::Skip(secs(60)));
    let job = Job::takes(ms(0));
    // 1 and 3 are never sent.
    register(&worker, "ann", &[1, 2, 3, 4]).await;
    assert_waiting(&comes(&worker, "ann", 4, &job).await);
    world.clock.advance(secs(30)).await;
    assert_waiting(&comes(&worker, "ann", 2, &job).await);
    world.clock.advance(secs(30)).await;
    assert_waiting(&comes(&worker, "ann", 4, &job).await);
    world.clock.advance(secs(30)).await;
    assert_waiting(&comes(&worker, "ann", 4, &job).await);
    assert_eq!(comes(&worker, "ann", 2, &job).await, Outcome::Ran);
    assert_eq!(comes(&worker, "ann", 4, &job).await, Outcome::Ran);
    assert_eq!(worker.executor.counts().late(), 0);
}

async fn a_number_that_skips_waits_for_one_that_is_retried(world: World) {
    let policy = Policy::new().on_broken_order(OnBrokenOrder::Skip(secs(60))).max_retries(9);
    let worker = world.worker("a", policy);
    let (fails, job) = (Job::ends(ms(0), crate::common::End::Err), Job::takes(ms(0)));
    // 2 is never sent.
    register(&worker, "ann", &[1, 2, 3]).await;
    assert!(matches!(comes(&worker, "ann", 1, &fails).await, Outcome::Released { .. }));
    for _ in 0..4 {
        assert_waiting(&comes(&worker, "ann", 3, &job).await);
        world.clock.advance(secs(40)).await;
    }
    assert_eq!(comes(&worker, "ann", 1, &job).await, Outcome::Ran);
    assert_eq!(comes(&worker, "ann", 3, &job).await, Outcome::Ran);
}

async fn a_number_that_skips_waits_for_one_that_was_killed(world: World) {
    let policy = Policy::new().on_broken_order(OnBrokenOrder::Skip(secs(60)));
    let (killed, worker) = (world.worker("a", policy), world.worker("b", policy));
    let job = Job::takes(ms(0));
    // 2 is never sent, and 1 is killed while it runs.
    register(&worker, "ann", &[1, 2, 3]).await;
    let first = begin(&killed, "ann", 1, &Job::takes(secs(600))).await;
    killed.kill(first).await;
    for _ in 0..2 {
        assert_waiting(&comes(&worker, "ann", 3, &job).await);
        world.clock.advance(secs(40)).await;
    }
    // Its lease of 30 s is over, and it is missing since then.
    assert_waiting(&comes(&worker, "ann", 3, &job).await);
    assert_eq!(comes(&worker, "ann", 1, &job).await, Outcome::Ran);
    assert_eq!(comes(&worker, "ann", 3, &job).await, Outcome::Ran);
}
