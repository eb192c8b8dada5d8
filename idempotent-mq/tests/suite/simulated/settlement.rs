//! Settlements that the broker refuses, does not answer, or cannot delay long enough.
use idempotent_core::Policy;
use idempotent_mq::{DelaySupport, Delivery, HandlerResult, Position, Settlement, SourceCapabilities, SourceErrorKind};

use crate::broker::{Ways, What};
use crate::world::{Building, Job, World, again, again_once, consuming, ending, ms, never, secs};

#[tokio::test]
async fn an_acknowledgement_over_a_closed_channel_is_not_repeated() {
    let (world, job, process) = consuming(secs(1)).await;
    world.broker.send("m1", "{}");
    world.clock.advance(ms(500)).await;
    // The connection is made again meanwhile: the delivery belongs to the old one.
    world.broker.cut();
    world.clock.advance(secs(10)).await;
    let refusals = world.broker.story("m1").into_iter().filter(|(_, what)| matches!(what, What::Refused(_))).count();
    assert_eq!((job.runs(), refusals > 0), (1, true));
    assert_eq!(process.counts().unsettled as usize, refusals, "once for each delivery");
}

#[tokio::test]
async fn a_permanent_broker_refusal_returns_the_message_ends_the_consumer_and_acknowledges_nothing() {
    for ends in [again as fn(u32) -> HandlerResult, |_| HandlerResult::Done] {
        let world = World::new();
        let job = Job::ends(&world, ms(10), ends);
        let alone = |builder: Building| builder.concurrency(1).prefetch(2).claim_ahead(0);
        let process = world.consume_by(Policy::new(), job.by_id(), alone).await;
        world.broker.fail_settling(SourceErrorKind::Fatal, 1);
        world.broker.send("m1", "{}");
        world.broker.send("m2", "{}");
        world.clock.advance(secs(60)).await;
        let refused = (10, What::Refused(SourceErrorKind::Fatal));
        let given_back = (10, What::Settled(Settlement::GiveBack));
        assert_eq!(world.broker.story("m1"), [(0, What::Delivered), refused, given_back.clone()]);
        assert_eq!(world.broker.story("m2"), [(0, What::Delivered), given_back]);
        let counts = process.counts();
        assert_eq!((counts.given_back, counts.unsettled, counts.acked, job.runs()), (2, 0, 0, 1));
        assert!(process.task.is_finished(), "it goes on");
        let error = process.task.await.unwrap().unwrap_err();
        assert_eq!(error.to_string(), "the broker refuses: as told");
    }
}

#[tokio::test]
async fn a_dead_letter_and_the_retry_in_its_place_refused_for_good_end_the_consumer() {
    let (world, _, process) = ending(ms(10), never).await;
    // And it cannot even be given back.
    world.broker.fail_settling(SourceErrorKind::Fatal, 3);
    world.broker.send("m1", "{}");
    world.clock.advance(secs(60)).await;
    assert_eq!((process.counts().unsettled, process.counts().acked, world.broker.held()), (1, 0, 1));
    assert!(process.task.is_finished(), "it goes on");
    assert_eq!(process.task.await.unwrap().unwrap_err().kind(), SourceErrorKind::Fatal);
}

#[tokio::test]
async fn settling_that_fails_for_now_is_tried_again() {
    let (world, job, process) = consuming(ms(10)).await;
    world.broker.fail_settling(SourceErrorKind::Transient, 3);
    world.broker.send("m1", "{}");
    world.clock.advance(secs(2)).await;
    assert_eq!((world.broker.is_acked("m1"), job.runs(), process.counts().unsettled), (true, 1, 0));
}

#[tokio::test]
async fn settling_that_is_not_answered_is_tried_again() {
    let (world, _, process) = consuming(ms(10)).await;
    world.broker.hang_settling(1);
    world.broker.send("m1", "{}");
    world.clock.advance(ms(5_200)).await;
    assert_eq!((world.broker.is_acked("m1"), process.counts().source_errors), (true, 1));
}

#[tokio::test]
async fn a_delay_longer_than_the_brokers_longest_is_made_of_several() {
    let most = secs(60);
    let capabilities = SourceCapabilities::new(DelaySupport::UpTo(most)).counts();
    let world = World::with(Ways { capabilities, ..Ways::default() });
    let job = Job::ends(&world, ms(10), again_once);
    let schedule = idempotent_mq::Schedule::list([secs(300)]);
    let process = world.consume_by(Policy::new(), job.by_id(), |builder| builder.schedule(schedule)).await;
    let position = Position::of("orders").offset(17);
    world.broker.send_delivery("m1", Delivery::new(position, b"{}".to_vec()).id("m1"));
    world.clock.advance(secs(400)).await;
    assert_eq!(job.times(), [0, 300_010]);
    assert_eq!(world.broker.delivered("m1"), [0, 60_010, 120_010, 180_010, 240_010, 300_010]);
    let (steps, attempts): (Vec<_>, Vec<_>) =
        world.broker.retries("m1").iter().map(|retry| (retry.after, retry.attempt)).unzip();
    assert_eq!((steps, attempts), (vec![most; 5], vec![2; 5]));
    assert_eq!((process.counts().retried, process.counts().deferred), (1, 4));
}

#[tokio::test]
async fn the_deliveries_that_a_long_delay_is_made_of_are_not_held_against_the_message() {
    let capabilities = SourceCapabilities::new(DelaySupport::UpTo(secs(2))).counts();
    let world = World::with(Ways { capabilities, ..Ways::default() });
    let job = Job::ends(&world, ms(10), again);
    let schedule = idempotent_mq::Schedule::list([secs(300)]);
    let policy = Policy::new().max_retries(2);
    world.consume_by(policy, job.by_id(), |builder| builder.schedule(schedule)).await;
    world.broker.send("m1", "{}");
    world.clock.advance(secs(700)).await;
    let (_, letter) = world.broker.dead().remove(0);
    assert_eq!((job.runs(), &*letter.reason), (3, "given up after 3 runs: no stock"));
    assert!(world.broker.delivered("m1").len() > 300);
}

#[tokio::test]
async fn a_settlement_that_keeps_failing_is_given_up_after_15_s_and_the_consumer_goes_on() {
    let (world, _, process) = consuming(ms(10)).await;
    world.broker.fail_settling(SourceErrorKind::Transient, 1_000);
    world.broker.send("m1", "{}");
    world.clock.advance(secs(60)).await;
    let story = world.broker.story("m1");
    let (last, _) = story.last().unwrap();
    assert!(story.len() > 5 && (10_000..15_010).contains(last), "{story:?}");
    assert_eq!((process.counts().unsettled, process.counts().acked, process.task.is_finished()), (1, 0, false));
}

#[tokio::test]
async fn a_dead_letter_refused_for_good_and_a_retry_that_fails_for_now_do_not_end_the_consumer() {
    let (world, _, process) = ending(ms(10), never).await;
    world.broker.fail_settling(SourceErrorKind::Fatal, 1);
    world.broker.fail_settling(SourceErrorKind::Transient, 1_000);
    world.broker.send("m1", "{}");
    world.clock.advance(secs(60)).await;
    assert_eq!((process.counts().unsettled, process.task.is_finished()), (1, false));
}

#[tokio::test]
async fn a_message_whose_retry_is_refused_is_a_dead_letter_and_the_consumer_goes_on() {
    let (world, job, process) = ending(ms(10), again).await;
    world.broker.fail_settling(SourceErrorKind::Refused, 1);
    world.broker.send("m1", "{}");
    world.clock.advance(secs(60)).await;
    let (_, letter) = world.broker.dead().remove(0);
    assert_eq!(&*letter.reason, "the handler failed, and a retry is impossible: this message is refused: as told");
    assert_eq!((letter.attempts, letter.deaths, job.runs()), (1, 1, 1));
    let counts = process.counts();
    assert_eq!((counts.dead_lettered, counts.retried, process.task.is_finished()), (1, 0, false));
}

#[tokio::test]
async fn a_message_whose_dead_letter_is_refused_is_retried_later_and_counted_so() {
    let (world, _, process) = ending(ms(10), never).await;
    world.broker.fail_settling(SourceErrorKind::Refused, 1);
    world.broker.send("m1", "{}");
    world.clock.advance(secs(60)).await;
    assert_eq!(
        (world.broker.retries("m1").len(), process.counts().deferred, process.task.is_finished()),
        (1, 1, false)
    );
    // Neither is possible: the message stays with the broker, and the consumer goes on.
    world.broker.fail_settling(SourceErrorKind::Refused, 2);
    world.broker.send("m2", "{}");
    world.clock.advance(secs(60)).await;
    assert_eq!((process.counts().unsettled, process.task.is_finished()), (1, false));
}

#[tokio::test]
async fn connections_that_end_before_a_settlement_are_opened_with_growing_pauses() {
    let (world, _, process) = consuming(ms(10)).await;
    world.broker.hang_settling(1_000);
    world.broker.send("m1", "{}");
    for ended in 1..=6 {
        while world.broker.delivered("m1").len() < ended {
            world.clock.advance(ms(10)).await;
        }
        world.broker.cut();
        world.broker.revoke(Position::of("orders"));
    }
    let delivered = world.broker.delivered("m1");
    let pauses: Vec<_> = delivered.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(pauses.windows(2).all(|pair| pair[1] > pair[0]), "{pauses:?}");
    assert!(process.counts().source_errors >= 5, "{:?}", process.counts());
}

#[tokio::test]
async fn the_unanswered_settlement_of_a_revoked_delivery_is_not_repeated() {
    let (world, _, process) = consuming(ms(10)).await;
    world.broker.hang_settling(1_000);
    let position = Position::of("orders").offset(17);
    world.broker.send_delivery("m1", Delivery::new(position, b"{}".to_vec()).id("m1"));
    world.clock.advance(ms(50)).await;
    world.broker.revoke(Position::of("orders"));
    world.clock.advance(secs(60)).await;
    let counts = process.counts();
    // The settlement without an answer, and the source that was revoked before a settlement.
    assert_eq!((counts.source_errors, counts.unsettled, counts.revoked, counts.acked), (2, 0, 1, 0));
}

#[tokio::test]
async fn a_delivery_that_cannot_be_given_back_during_a_drain_does_not_fail_the_consumer() {
    let world = World::new();
    let job = Job::ok(&world, secs(1));
    let mut process = world.consume_by(Policy::new(), job.by_id(), |builder| builder.concurrency(1).prefetch(2)).await;
    world.broker.send_all(&["m1", "m2"]);
    world.clock.advance(ms(10)).await;
    world.broker.fail_settling(SourceErrorKind::Fatal, 1);
    process.stop().await;
    world.clock.advance(secs(60)).await;
    let counts = process.task.await.unwrap().unwrap();
    assert_eq!((counts.acked, counts.given_back, counts.unsettled), (1, 0, 1));
}
