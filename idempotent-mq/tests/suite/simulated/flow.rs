//! The course of a message: duplicates, failures, panics, lost leases, store outages.
use idempotent_core::{Disposition, Policy, StateKind};
use idempotent_mq::{Delivery, HandlerResult, KeyFrom, Messages, Position, Settlement, SourceErrorKind};
use idempotent_testkit::{FOREVER, StoreOperation};

use crate::broker::{Broker, Ways, What};
use crate::world::{Job, World, again_once, consuming, ending, ms, secs};

#[tokio::test]
async fn a_message_is_run_recorded_and_then_acknowledged() {
    let (world, _, process) = consuming(ms(200)).await;
    world.broker.send("m1", "{}");
    world.clock.advance(ms(199)).await;
    assert_eq!(world.broker.settlements("m1"), []);
    world.clock.advance(ms(1)).await;
    assert_eq!(world.broker.story("m1"), [(0, What::Delivered), (200, What::Settled(Settlement::Ack))]);
    assert_eq!(world.record("m1").await.unwrap().state.kind(), StateKind::Consumed);
    assert_eq!((process.counts().received, process.counts().acked, process.counts().ended()), (1, 1, 1));
}

#[tokio::test]
async fn a_duplicate_of_a_run_in_flight_is_retried_later_and_is_acknowledged_without_a_second_run() {
    let world = World::new();
    let job = Job::ok(&world, secs(3));
    let process = world.consume(Policy::new().in_flight_delay(secs(10)), job.by_id()).await;
    world.broker.send("m1", "{}");
    world.clock.advance(secs(1)).await;
    world.broker.send("m1", "{}");
    world.clock.advance(ms(50)).await;
    let retries = world.broker.retries("m1");
    assert_eq!((retries.len(), retries[0].attempt, &*retries[0].reason), (1, 1, "in_flight"));
    assert_eq!(retries[0].after, secs(10));
    world.clock.advance(secs(10)).await;
    assert_eq!(world.broker.delivered("m1"), [0, 1_000, 11_000]);
    assert!(world.broker.is_acked("m1"));
    assert_eq!((job.runs(), world.broker.left()), (1, 0));
    let counts = process.counts();
    assert_eq!((counts.acked, counts.deferred, counts.retried, counts.received), (2, 1, 0, 3));
}

#[tokio::test]
async fn the_key_is_free_before_the_broker_is_asked_to_redeliver() {
    let world = World::new();
    let job = Job::ends(&world, ms(200), again_once);
    let process = world.consume(Policy::new().retry_delay(ms(1)), job.by_id()).await;
    // The store takes its time to free the key: the requeue waits for it.
    process.store.delay_reply(StoreOperation::Release, ms(70));
    world.broker.send("m1", "{}");
    world.clock.advance(ms(269)).await;
    assert_eq!(world.record("m1").await.unwrap().state.kind(), StateKind::Vacant);
    assert_eq!(world.broker.settlements("m1"), []);
    world.clock.advance(ms(1)).await;
    assert!(matches!(world.broker.settlements("m1")[..], [Settlement::Retry(_)]));
    world.clock.advance(ms(300)).await;
    assert_eq!((job.times(), world.broker.is_acked("m1")), (vec![0, 271], true));
}

#[tokio::test]
async fn a_business_failure_without_an_error_is_no_success() {
    let world = World::new();
    let handling =
        Messages::raw().keyed(KeyFrom::message_id()).run(|_| async { Disposition::Retry { after: secs(60) } });
    world.consume(Policy::new(), handling).await;
    world.broker.send("m1", "{}");
    world.clock.settle().await;
    let retries = world.broker.retries("m1");
    // The delay of the handler applies if it is longer.
    assert_eq!((retries[0].after, retries[0].attempt), (secs(60), 2));
    assert_eq!(world.record("m1").await.unwrap().state.kind(), StateKind::Vacant);
}

#[tokio::test]
async fn a_panic_of_the_handler_is_a_failed_attempt_and_the_consumer_goes_on() {
    let (world, job, process) =
        ending(ms(100), |run| if run == 1 { panic!("as told") } else { HandlerResult::Done }).await;
    world.broker.send("m1", "{}");
    world.broker.send("m2", "{}");
    world.clock.advance(secs(2)).await;
    assert!(world.broker.is_acked("m1") && world.broker.is_acked("m2"));
    assert_eq!((job.runs(), process.counts().retried, process.task.is_finished()), (3, 1, false));
}

#[tokio::test]
async fn a_killed_workers_message_waits_for_its_lease_and_is_taken_over_with_a_higher_number() {
    let world = World::new();
    let policy = Policy::new().lease(secs(2)).in_flight_delay(ms(100)).in_flight_delay_max(ms(100));
    let dies = Job::ok(&world, secs(60));
    let first = world.consume(policy, dies.by_id()).await;
    world.broker.send("m1", "{}");
    world.clock.advance(ms(100)).await;
    first.kill().await;
    world.broker.cut();
    let job = Job::ok(&world, ms(10));
    let second = world.consume(policy, job.by_id()).await;
    world.clock.advance(ms(1_800)).await;
    assert_eq!((job.runs(), world.broker.retries("m1").is_empty()), (0, false));
    world.clock.advance(ms(300)).await;
    assert!(world.broker.is_acked("m1"));
    let (died, took_over) = (&dies.seen()[0], &job.seen()[0]);
    assert_eq!((died.attempt, took_over.attempt), (Some(1), Some(2)));
    assert!(took_over.fencing > died.fencing && took_over.at >= 2_000 && took_over.at < 2_200);
    assert_eq!(second.counts().deferred, second.counts().received - 1);
}

#[tokio::test]
async fn a_run_that_lost_its_lease_is_retried_and_ends_as_a_duplicate() {
    let world = World::new();
    let policy = Policy::new().lease(secs(1)).in_flight_delay(ms(200)).in_flight_delay_max(ms(200));
    // A's renewals do not get through; B takes over and succeeds.
    let slow = Job::ok(&world, ms(1_600));
    let a = world.consume(policy, slow.by_id()).await;
    a.store.fail_before(StoreOperation::Renew, FOREVER);
    world.broker.send("m1", "{}");
    world.clock.advance(ms(890)).await;
    assert_eq!(world.broker.retries("m1"), []);
    world.clock.advance(ms(310)).await;
    let retries = world.broker.retries("m1");
    assert_eq!((&*retries[0].reason, a.counts().acked), ("lease_lost", 0));
    a.kill().await;
    let quick = Job::ok(&world, ms(100));
    world.consume(policy, quick.by_id()).await;
    world.clock.advance(secs(3)).await;
    world.broker.send("m1", "{}");
    world.clock.advance(ms(10)).await;
    assert_eq!((slow.runs(), quick.runs(), world.broker.left()), (1, 1, 0));
}

#[tokio::test]
async fn nothing_is_acknowledged_before_its_handler_has_ended_and_a_crash_in_it_loses_nothing() {
    let world = World::new();
    let policy = Policy::new().lease(secs(2));
    let job = Job::ok(&world, secs(5));
    let process = world.consume(policy, job.by_id()).await;
    world.broker.send("m1", "{}");
    world.clock.advance(ms(4_900)).await;
    assert_eq!((job.runs(), world.broker.story("m1")), (1, vec![(0, What::Delivered)]));
    process.kill().await;
    world.broker.cut();
    world.consume(policy, job.by_id()).await;
    world.clock.advance(secs(60)).await;
    assert_eq!((job.runs(), world.broker.is_acked("m1")), (2, true));
}

#[tokio::test]
async fn a_message_whose_run_cannot_be_recorded_is_neither_acknowledged_nor_released() {
    let world = World::new();
    let policy = Policy::new().lease(secs(2)).in_flight_delay(ms(100)).in_flight_delay_max(ms(100));
    let job = Job::ok(&world, ms(100));
    let a = world.consume(policy, job.by_id()).await;
    a.store.fail_before(StoreOperation::Complete, FOREVER);
    world.broker.send("m1", "{}");
    world.clock.advance(secs(2)).await;
    let retries = world.broker.retries("m1");
    assert_eq!((&*retries[0].reason, retries[0].attempt, a.counts().acked), ("unrecorded", 2, 0));
    assert!(world.store.log().iter().all(|call| call.verb != StoreOperation::Release));
    a.store.heal();
    world.clock.advance(secs(30)).await;
    // After the lease it runs again: said so, never lost.
    assert_eq!((job.runs(), world.broker.is_acked("m1")), (2, true));
}

#[tokio::test]
async fn while_the_store_is_down_nothing_runs_and_nothing_is_acknowledged() {
    let (world, job, process) = consuming(ms(10)).await;
    process.store.down();
    world.broker.send("m1", "{}");
    world.clock.advance(ms(500)).await;
    let retries = world.broker.retries("m1");
    assert_eq!((job.runs(), &*retries[0].reason, retries[0].attempt), (0, "store_down", 1));
    assert!(retries[0].after >= ms(800) && retries[0].after <= ms(1_200), "{:?}", retries[0].after);
    assert_eq!((process.counts().deferred, process.counts().pauses), (1, 1));
}

#[tokio::test]
async fn a_handler_runs_unprotected_and_is_counted_if_the_policy_allows_it() {
    use idempotent_core::OnStoreError;
    let world = World::new();
    let job = Job::ok(&world, ms(10));
    let policy = Policy::new().on_store_error(OnStoreError::RunUnprotected);
    let process = world.consume(policy, job.by_id()).await;
    process.store.down();
    world.broker.send_all(&["m1", "m2"]);
    world.clock.advance(secs(1)).await;
    assert!(world.broker.is_acked("m1") && world.broker.is_acked("m2"));
    assert_eq!((process.counts().unprotected, process.counts().pauses, job.runs()), (2, 0, 2));
}

#[tokio::test]
async fn a_finished_message_is_acknowledged_on_each_redelivery_after_a_lost_acknowledgement() {
    let (world, job, process) = consuming(ms(10)).await;
    // More often than it is tried: the broker has to deliver again.
    world.broker.fail_settling(SourceErrorKind::Gone, 1);
    world.broker.send("m1", "{}");
    world.clock.advance(secs(1)).await;
    assert_eq!((process.counts().unsettled, world.broker.held()), (1, 1));
    let kept_until = world.record("m1").await.unwrap().expires_at;
    for wait in [1, 4, 55] {
        world.clock.advance(secs(wait)).await;
        world.broker.send("m1", "{}");
        world.clock.advance(ms(10)).await;
    }
    assert_eq!((job.runs(), process.counts().acked), (1, 3));
    assert_eq!(world.record("m1").await.unwrap().expires_at, kept_until);
}

#[tokio::test]
async fn a_message_on_two_brokers_is_run_once_and_acknowledged_on_both() {
    let world = World::new();
    let other = Broker::new(&world.clock, Ways::default());
    let job = Job::ok(&world, ms(10));
    let key = || KeyFrom::header("order");
    let first = world.consume(Policy::new(), job.keyed(key())).await;
    let (source, handling) = (other.connect(), job.keyed(key()));
    let second = world.consume_from(source, "billing", Policy::new(), handling, |builder| builder).await;
    for (broker, name) in [(&world.broker, "a"), (&other, "b")] {
        let delivery = Delivery::new(Position::of(name), b"{}".to_vec()).id(name).header("order", "o-17");
        broker.send_delivery(name, delivery);
    }
    world.clock.advance(secs(2)).await;
    assert_eq!((job.runs(), world.broker.is_acked("a"), other.is_acked("b")), (1, true, true));
    assert_eq!((first.counts().acked, second.counts().acked), (1, 1));
}

#[tokio::test]
async fn messages_that_a_prefix_commit_delivers_again_are_acknowledged_without_a_run() {
    let world = World::new();
    let job = Job::ends(&world, ms(10), |run| match run {
        2 => HandlerResult::Again { after: None, error: "no stock".into() },
        _ => HandlerResult::Done,
    });
    let process = world.consume_by(Policy::new(), job.by_id(), |builder| builder.concurrency(1)).await;
    world.broker.send_all(&["a", "b", "c"]);
    world.clock.advance(ms(50)).await;
    // `a` and `c` are done, `b` is not: the prefix ends before `b`, so `c` comes again with it.
    assert_eq!(job.runs(), 3);
    world.broker.send("c", "{}");
    world.clock.advance(secs(2)).await;
    let ids: Vec<_> = job.seen().into_iter().filter_map(|seen| seen.id).collect();
    assert_eq!((ids, process.counts().acked), (["a", "b", "c", "b"].map(str::to_owned).to_vec(), 4));
}

#[tokio::test]
async fn a_message_in_flight_does_not_delay_the_messages_after_it() {
    let world = World::new();
    let slow = Job::ok(&world, secs(5));
    let first = world.consume(Policy::new(), slow.by_id()).await;
    world.broker.send("a", "{}");
    world.clock.advance(ms(10)).await;
    first.kill().await;
    let job = Job::ok(&world, ms(10));
    world.consume_by(Policy::new(), job.by_id(), |builder| builder.concurrency(1)).await;
    world.broker.send_all(&["a", "b", "c"]);
    world.clock.advance(ms(50)).await;
    assert!(world.broker.is_acked("b") && world.broker.is_acked("c") && !world.broker.is_acked("a"));
}
