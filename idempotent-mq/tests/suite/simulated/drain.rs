//! Stopping: nothing new is taken, what runs may end, the rest is given back and never acknowledged.
use idempotent_core::{Policy, StateKind};
use idempotent_mq::{Settlement, SourceErrorKind};
use idempotent_testkit::{FOREVER, StoreOperation};

use crate::broker::What;
use crate::world::{Job, World, consuming, ms, never, secs};

#[tokio::test]
async fn a_consumer_that_stops_ends_what_it_can_and_gives_back_the_rest() {
    let world = World::new();
    let (short, long) = (Job::ok(&world, secs(2)), Job::ok(&world, secs(60)));
    let (first, second) = (short.clone(), long.clone());
    let handling = idempotent_mq::Messages::raw().keyed(idempotent_mq::KeyFrom::message_id()).run(move |message| {
        let job = if message.delivery.id.as_deref() == Some("long") { second.clone() } else { first.clone() };
        async move { job.run(message).await }
    });
    let mut process =
        world.consume_by(Policy::new(), handling, |builder| builder.concurrency(3).prefetch(5).grace(secs(5))).await;
    world.broker.send_all(&["s1", "s2", "long", "waits"]);
    world.clock.settle().await;
    assert_eq!(world.broker.held(), 4);
    process.stop().await;
    // At once: no more is taken, and what waited for its turn is given back.
    world.broker.send("late", "{}");
    assert_eq!(world.broker.story("waits"), [(0, What::Delivered), (0, What::Settled(Settlement::GiveBack))]);
    assert_eq!(world.broker.story(""), [(0, What::Closed)]);
    world.clock.advance(ms(4_999)).await;
    assert!(world.broker.is_acked("s1") && world.broker.is_acked("s2") && !process.task.is_finished());
    world.clock.advance(ms(1)).await;
    assert_eq!(world.broker.story("long").last(), Some(&(5_000, What::Settled(Settlement::GiveBack))));
    assert!(process.task.is_finished());
    let counts = process.task.await.unwrap().unwrap();
    assert_eq!((counts.acked, counts.given_back, counts.ended(), counts.received), (2, 2, 4, 4));
    assert!(world.broker.delivered("late").is_empty());
    // Its effect is unknown: the key is left to its lease, that of the one that never ran is free.
    assert_eq!(world.record("long").await.unwrap().state.kind(), StateKind::Consuming);
    assert!(world.record("waits").await.is_none());
}

#[tokio::test]
async fn a_claim_without_a_started_handler_is_released_at_once_and_costs_no_attempt() {
    let world = World::new();
    let job = Job::ok(&world, ms(10));
    let mut process = world.consume_by(Policy::new(), job.by_id(), |builder| builder.grace(secs(20))).await;
    process.store.delay_reply(StoreOperation::Claim, secs(5));
    world.broker.send("m1", "{}");
    world.clock.settle().await;
    process.stop().await;
    assert_eq!(world.broker.story("m1"), [(0, What::Delivered), (0, What::Settled(Settlement::GiveBack))]);
    assert!(process.task.is_finished());
    // The next consumer does not meet the key of the consumer that returned the message.
    assert_eq!((job.runs(), world.record("m1").await), (0, None));
    world.clock.advance(secs(10)).await;
    assert_eq!(job.runs(), 0);
}

#[tokio::test]
async fn an_unavailable_broker_does_not_delay_the_end() {
    let world = World::new();
    let job = Job::ok(&world, secs(1));
    let mut process = world.consume_by(Policy::new(), job.by_id(), |builder| builder.grace(secs(5))).await;
    world.broker.fail_settling(SourceErrorKind::Transient, 1_000);
    world.broker.send("m1", "{}");
    world.clock.settle().await;
    process.stop().await;
    world.clock.advance(secs(6)).await;
    let counts = process.task.await.unwrap().unwrap();
    // Done and recorded: the broker delivers it again, and it is acknowledged then.
    assert_eq!((counts.unsettled, counts.acked, job.runs()), (1, 0, 1));
    assert_eq!(world.record("m1").await.unwrap().state.kind(), StateKind::Consumed);
}

#[tokio::test]
async fn a_source_that_does_not_close_does_not_delay_the_end() {
    let (world, _, mut process) = consuming(ms(10)).await;
    world.broker.hang_closing();
    process.stop().await;
    assert!(!process.task.is_finished());
    world.clock.advance(secs(1)).await;
    assert!(process.task.is_finished());
}

#[tokio::test]
async fn a_dead_letter_without_a_readable_record_does_not_delay_the_end() {
    let world = World::new();
    let job = Job::ends(&world, ms(1_500), never);
    let mut process = world.consume_by(Policy::new(), job.by_id(), |builder| builder.grace(secs(2))).await;
    process.store.hang(StoreOperation::Peek, FOREVER);
    world.broker.fail_settling(SourceErrorKind::Transient, 1_000);
    world.broker.send("m1", "{}");
    world.clock.settle().await;
    process.stop().await;
    world.clock.advance(secs(3)).await;
    assert!(process.task.is_finished());
}

#[tokio::test]
async fn a_handler_that_ends_within_the_grace_while_its_store_hangs_is_given_back_unacknowledged() {
    let world = World::new();
    let job = Job::ok(&world, secs(1));
    let mut process = world.consume_by(Policy::new(), job.by_id(), |builder| builder.grace(secs(3))).await;
    process.store.hang(StoreOperation::Complete, FOREVER);
    world.broker.send("m1", "{}");
    world.clock.settle().await;
    process.stop().await;
    world.clock.advance(secs(4)).await;
    assert!(process.task.is_finished());
    assert_eq!(world.broker.settlements("m1"), [Settlement::GiveBack]);
}

#[tokio::test]
async fn a_source_that_fails_permanently_ends_the_consumer_after_its_drain() {
    let (world, _, process) = consuming(secs(1)).await;
    world.broker.send("m1", "{}");
    world.clock.settle().await;
    world.broker.fail_receiving(SourceErrorKind::Fatal, 1);
    world.clock.advance(secs(1)).await;
    assert!(world.broker.is_acked("m1"));
    let error = process.task.await.unwrap().unwrap_err();
    assert_eq!((error.kind(), error.to_string()), (SourceErrorKind::Fatal, "the broker refuses: as told".to_owned()));
}

#[tokio::test]
async fn receiving_that_fails_for_now_is_tried_again_with_growing_pauses() {
    let (world, job, process) = consuming(ms(1)).await;
    world.broker.fail_receiving(SourceErrorKind::Transient, 6);
    world.broker.send("m1", "{}");
    // 100, 200 … 3,200 ms, spread by 20 %.
    world.clock.advance(ms(5_000)).await;
    assert_eq!((job.runs(), process.counts().source_errors), (0, 6));
    world.clock.advance(ms(2_600)).await;
    assert!(world.broker.is_acked("m1"));
}

#[tokio::test]
async fn a_consumer_that_is_dropped_settles_nothing() {
    let (world, _, process) = consuming(secs(1)).await;
    world.broker.send("m1", "{}");
    world.clock.settle().await;
    let counters = process.counters.clone();
    process.kill().await;
    assert_eq!((counters.counts().unsettled, world.broker.held()), (1, 1));
    assert_eq!(world.broker.settlements("m1"), []);
}

#[tokio::test]
async fn while_only_the_executor_drains_messages_are_put_off_and_not_requeued_in_a_hot_loop() {
    let (world, job, process) = consuming(ms(10)).await;
    process.executor.drain(secs(1)).await;
    world.broker.send("m1", "{}");
    world.clock.advance(secs(10)).await;
    assert_eq!((job.runs(), world.broker.delivered("m1").len()), (0, 11));
    let retries = world.broker.retries("m1");
    assert!(retries.iter().all(|retry| retry.attempt == 1 && retry.reason == "draining"), "{retries:?}");
}

#[tokio::test]
async fn messages_delivered_while_the_consumer_stops_are_returned() {
    let (world, job, mut process) = consuming(ms(10)).await;
    // Both at one instant: intake takes the message before it hears of the end.
    world.broker.send("m1", "{}");
    process.stop().await;
    world.clock.advance(secs(1)).await;
    let counts = process.task.await.unwrap().unwrap();
    assert_eq!((counts.received, counts.given_back, job.runs()), (1, 1, 0));
    assert_eq!(world.broker.settlements("m1"), [Settlement::GiveBack]);
}
