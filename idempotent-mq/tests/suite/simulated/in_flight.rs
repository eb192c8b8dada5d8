//! Duplicates of a run in flight that an annotated function acknowledges: `on_in_flight = ack`.
use std::sync::Arc;

use idempotent_core::{Policy, Rejection};
use idempotent_macros::idempotent;
use idempotent_mq::{DeliveryResult, Message, MessageHandler, Messages, SenderState};

use crate::log::Log;
use crate::world::{Building, Job, World, ms, secs};

#[idempotent(scene = mq, scope = "slow", key = number, on_in_flight = ack, crate = idempotent_core)]
async fn slow(number: u32, job: &Job, message: Message<()>) -> Result<(), Rejection> {
    job.run(message).await;
    Ok(())
}

#[idempotent(scene = mq, scope = "outer", key = *message.delivery.id.as_ref().unwrap(), crate = idempotent_core)]
async fn outer(job: &Job, message: Message<()>) -> Result<(), Rejection> {
    slow(1, job, message).await
}

#[idempotent(scene = mq, scope = "fails", key = *message.delivery.id.as_ref().unwrap(), crate = idempotent_core)]
async fn fails(message: &Message<()>) -> Result<(), Rejection> {
    Err(Rejection::LeaseLost)
}

/// A handler that runs `slow` with the same key for all messages.
fn handling(job: &Arc<Job>) -> MessageHandler {
    let job = job.clone();
    Messages::raw().annotated(move |message| {
        let job = job.clone();
        async move { slow(1, &job, message).await }
    })
}

#[tokio::test]
async fn a_duplicate_of_an_annotated_run_in_flight_is_acknowledged_if_the_sender_resends_it() {
    for (state, acked) in
        [(SenderState::Unconfirmed, true), (SenderState::Confirmed, false), (SenderState::Foreign, false)]
    {
        let (world, log) = (World::new(), Log::answering(state));
        let job = Job::ok(&world, secs(10));
        let more = |builder: Building| builder.log(log.clone());
        let process = world.consume_by(Policy::new(), handling(&job), more).await;
        world.broker.send_all(&["m1", "m2"]);
        world.clock.advance(secs(1)).await;
        assert_eq!(
            (job.runs(), world.broker.is_acked("m2"), process.counts().acked),
            (1, acked, u64::from(acked)),
            "{state:?}"
        );
        assert_eq!(world.broker.retries("m2").is_empty(), acked, "{state:?}");
        assert!(log.concluded().iter().all(|(_, result)| *result == DeliveryResult::Deferred), "{state:?}");
        world.clock.advance(secs(60)).await;
        assert!(world.broker.is_acked("m1") && world.broker.is_acked("m2"), "{state:?}");
        assert_eq!(job.runs(), 1, "{state:?}");
    }
}

#[tokio::test]
async fn without_a_log_nothing_runs() {
    let world = World::new();
    let job = Job::ok(&world, ms(10));
    let process = world.consume(Policy::new(), handling(&job)).await;
    world.broker.send("m1", "{}");
    world.clock.advance(ms(200)).await;
    let [retry] = &world.broker.retries("m1")[..] else { panic!("one retry") };
    assert_eq!((job.runs(), &*retry.reason, process.counts().acked), (0, "misconfigured", 0));
}

#[tokio::test]
async fn inside_another_run_a_duplicate_is_not_acknowledged() {
    let (world, log) = (World::new(), Log::answering(SenderState::Unconfirmed));
    let job = Job::ok(&world, ms(10));
    let counted = job.clone();
    let handling = Messages::raw().annotated(move |message| {
        let job = counted.clone();
        async move { outer(&job, message).await }
    });
    let process = world.consume_by(Policy::new(), handling, |builder| builder.log(log.clone())).await;
    world.broker.send("m1", "{}");
    world.clock.advance(ms(200)).await;
    assert_eq!((job.runs(), process.counts().acked, world.broker.retries("m1").len()), (0, 0, 1));
}

#[tokio::test]
async fn a_delivery_is_retried_if_another_of_its_runs_failed() {
    let (world, log) = (World::new(), Log::answering(SenderState::Unconfirmed));
    let job = Job::ok(&world, secs(10));
    let counted = job.clone();
    let handling = Messages::raw().annotated(move |message: Message<()>| {
        let job = counted.clone();
        async move {
            let first = message.delivery.id.as_deref() == Some("m1");
            let failed = if first { Ok(()) } else { fails(&message).await };
            slow(1, &job, message).await.and(failed)
        }
    });
    let process = world.consume_by(Policy::new(), handling, |builder| builder.log(log.clone())).await;
    world.broker.send_all(&["m1", "m2"]);
    world.clock.advance(ms(200)).await;
    assert_eq!((job.runs(), world.broker.is_acked("m2"), process.counts().acked), (1, false, 0));
    assert_eq!(world.broker.retries("m2").len(), 1);
}
