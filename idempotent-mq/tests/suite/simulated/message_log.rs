//! The message log, which decides about a message before the store does.
use idempotent_core::Policy;
use idempotent_mq::{DelaySupport, Delivery, DeliveryResult, HandlerResult, Position, SenderState, SourceCapabilities};
use idempotent_testkit::{StoreOperation, VirtualClock};

use crate::broker::Ways;
use crate::log::Log;
use crate::world::{Building, Job, World, again, ms, secs};

#[tokio::test]
async fn a_consumed_or_void_message_is_acknowledged_without_a_claim_and_counted_as_skipped() {
    for (state, result) in [(SenderState::Consumed, DeliveryResult::Done), (SenderState::Void, DeliveryResult::Void)] {
        let (world, log) = (World::new(), Log::answering(state));
        let job = Job::ok(&world, ms(10));
        let process = world.consume_by(Policy::new(), job.by_id(), |builder| builder.log(log.clone())).await;
        world.broker.send_all(&["m1", "m2"]);
        world.clock.advance(secs(1)).await;
        assert_eq!(job.runs(), 0, "{state:?}");
        assert!(world.broker.is_acked("m1") && world.broker.is_acked("m2"), "{state:?}");
        let counts = process.counts();
        assert_eq!((counts.skipped, counts.acked, counts.expired), (2, 0, 0), "{state:?}");
        assert_eq!((counts.received, counts.ended()), (2, 2), "{state:?}");
        assert_eq!(log.concluded(), [("m1".to_owned(), result), ("m2".to_owned(), result)]);
        assert!(!process.store.log().iter().any(|call| call.verb == StoreOperation::Claim), "{state:?}");
    }
}

#[tokio::test]
async fn a_message_in_any_other_state_runs() {
    for state in [SenderState::Foreign, SenderState::Unconfirmed, SenderState::Confirmed, SenderState::Dead] {
        let (world, log) = (World::new(), Log::answering(state));
        let job = Job::ok(&world, ms(10));
        let process = world.consume_by(Policy::new(), job.by_id(), |builder| builder.log(log.clone())).await;
        world.broker.send("m1", "{}");
        world.clock.advance(secs(1)).await;
        assert_eq!((job.runs(), process.counts().skipped, process.counts().acked), (1, 0, 1), "{state:?}");
        let concluded = (state != SenderState::Foreign).then(|| ("m1".to_owned(), DeliveryResult::Done));
        assert_eq!(log.concluded(), Vec::from_iter(concluded), "{state:?}");
    }
}

#[tokio::test]
async fn a_consumer_that_does_not_skip_runs_messages_in_every_state_and_has_no_name_in_the_log() {
    for state in [SenderState::Consumed, SenderState::Void] {
        let (world, log) = (World::new(), Log::answering(state));
        let job = Job::ok(&world, ms(10));
        let more = |builder: Building| builder.log(log.clone()).skip_consumed(false);
        let process = world.consume_by(Policy::new(), job.by_id(), more).await;
        world.broker.send("m1", "{}");
        world.clock.advance(secs(1)).await;
        assert_eq!((job.runs(), process.counts().skipped, process.counts().acked), (1, 0, 1), "{state:?}");
        assert_eq!(log.consumers(), [None]);
    }
}

#[tokio::test]
async fn consumers_of_one_group_have_one_name_and_other_groups_another() {
    let (world, log) = (World::new(), Log::answering(SenderState::Unconfirmed));
    let job = Job::ok(&world, ms(10));
    for (group, message) in [("billing", "m1"), ("billing", "m2"), ("shipping", "m3")] {
        let (source, more) = (world.broker.connect(), |builder: Building| builder.log(log.clone()));
        let mut process = world.consume_from(source, group, Policy::new(), job.by_id(), more).await;
        world.broker.send(message, "{}");
        world.clock.advance(secs(1)).await;
        process.stop().await;
        world.clock.advance(secs(1)).await;
    }
    let [first, second, other] = &log.consumers()[..] else { panic!("three deliveries: {:?}", log.consumers()) };
    assert!(first.is_some() && other.is_some());
    assert_eq!(first, second);
    assert_ne!(first, other);
}

#[tokio::test]
async fn a_consumed_message_is_skipped_while_the_store_is_down() {
    let (world, log) = (World::new(), Log::answering(SenderState::Consumed));
    let job = Job::ok(&world, ms(10));
    let process = world.consume_by(Policy::new(), job.by_id(), |builder| builder.log(log.clone())).await;
    process.store.down();
    world.broker.send("m1", "{}");
    world.clock.advance(secs(1)).await;
    assert!(world.broker.is_acked("m1"));
    assert_eq!((job.runs(), process.counts().skipped, process.counts().deferred), (0, 1, 0));
}

#[tokio::test]
async fn a_consumed_message_that_was_delivered_too_often_is_no_dead_letter() {
    let capabilities = SourceCapabilities::new(DelaySupport::Any).counts();
    let world = World::with(Ways { capabilities, ..Ways::default() });
    let log = Log::answering(SenderState::Unconfirmed);
    let job = Job::ok(&world, secs(600));
    let more = |builder: Building| builder.log(log.clone()).max_deliveries(1);
    let first = world.consume_by(Policy::new(), job.by_id(), more).await;
    world.broker.send("m1", "{}");
    world.clock.settle().await;
    first.kill().await;
    world.broker.cut();
    log.answer(SenderState::Consumed);
    let more = |builder: Building| builder.log(log.clone()).max_deliveries(1);
    let second = world.consume_by(Policy::new(), job.by_id(), more).await;
    world.clock.advance(secs(1)).await;
    assert_eq!(world.broker.delivered("m1").len(), 2);
    assert!(world.broker.is_acked("m1") && world.broker.dead().is_empty());
    assert_eq!(second.counts().skipped, 1);
}

#[tokio::test]
async fn an_expired_message_is_concluded_as_expired_and_not_as_consumed() {
    let (world, log) = (World::new(), Log::answering(SenderState::Unconfirmed));
    let job = Job::ok(&world, ms(10));
    let process = world.consume_by(Policy::new(), job.by_id(), |builder| builder.log(log.clone())).await;
    let mut expired = Delivery::new(Position::of("orders"), Vec::new()).id("m1");
    expired.expires_at = Some(VirtualClock::START);
    log.take_results(false);
    world.broker.send_delivery("m1", expired);
    world.clock.advance(secs(1)).await;
    assert_eq!((process.counts().expired, process.counts().deferred), (0, 1), "not acknowledged before it is recorded");
    log.take_results(true);
    world.clock.advance(secs(10)).await;
    assert_eq!((job.runs(), process.counts().expired, process.counts().skipped), (0, 1, 0));
    assert_eq!(log.concluded(), [("m1".to_owned(), DeliveryResult::Expired)]);
}

#[tokio::test]
async fn a_failed_attempt_and_a_dead_letter_are_concluded_as_such() {
    let (world, log) = (World::new(), Log::answering(SenderState::Unconfirmed));
    let ends = |run| if run == 1 { again(run) } else { HandlerResult::Never { reason: "no".into() } };
    let job = Job::ends(&world, ms(10), ends);
    world.consume_by(Policy::new(), job.by_id(), |builder| builder.log(log.clone())).await;
    world.broker.send("m1", "{}");
    world.clock.advance(secs(60)).await;
    let results = [DeliveryResult::Failed, DeliveryResult::DeadLettered];
    assert_eq!(log.concluded(), results.map(|result| ("m1".to_owned(), result)));
}
