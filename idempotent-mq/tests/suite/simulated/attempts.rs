//! Attempts, their end, and the letters of the dead.
use std::time::Duration;

use idempotent_core::{Policy, Redelivery, Scene, Settled, StateKind, Store, StoreCapabilities, Timestamp};
use idempotent_mq::{
    DelaySupport, Delivery, DeliveryResult, HandlerResult, KeyFrom, Messages, Position, Schedule, SenderState,
    Settlement, SourceCapabilities,
};
use idempotent_testkit::StoreOperation;

use crate::broker::{Ways, What};
use crate::log::Log;
use crate::world::{Job, World, again, ending, key_of, ms, never, secs};

fn rocketmq() -> Ways {
    let steps: Vec<Duration> = (1..=16).map(|attempt| Schedule::rocketmq().after(attempt, 0)).collect();
    let capabilities =
        SourceCapabilities::new(DelaySupport::ByBroker).counts().redelivery(Redelivery::after(steps.iter().copied()));
    Ways { capabilities, steps, hold: None, marks: false }
}

#[tokio::test]
async fn a_marker_of_600_s_is_waited_for_in_five_deferrals_that_are_no_attempts() {
    let world = World::with(rocketmq());
    let policy = Policy::new().lease(secs(600)).max_run(secs(600));
    let dies = Job::ok(&world, secs(10_000));
    let first = world.consume(policy, dies.by_id()).await;
    world.broker.send("m1", "{}");
    world.clock.settle().await;
    first.kill().await;
    world.broker.cut();
    let job = Job::ok(&world, ms(10));
    let second = world.consume(policy, job.by_id()).await;
    world.clock.advance(secs(700)).await;
    assert_eq!(second.counts().deferred, 5);
    assert_eq!((job.runs(), job.seen()[0].attempt, world.broker.is_acked("m1")), (1, Some(2), true));
    assert!((640_000..640_100).contains(&job.times()[0]), "{:?}", job.times());
}

#[test]
fn a_lease_that_outlasts_the_brokers_redelivery_is_refused_with_both_sums() {
    let world = World::with(Ways {
        capabilities: SourceCapabilities::new(DelaySupport::Any)
            .redelivery(Redelivery::after([1, 5, 30, 300].map(secs))),
        ..Ways::default()
    });
    let job = Job::ok(&world, ms(10));
    let policy = Policy::new().lease(secs(600));
    let refused = world.refused(policy, job.by_id(), |builder| builder);
    assert!(refused.contains("10m") && refused.contains("5m 36s"), "{refused}");
    // The policy given with the key counts, too.
    let own = Messages::raw().keyed(KeyFrom::message_id()).policy(policy).run(|_| async { HandlerResult::Done });
    assert!(world.refused(Policy::new(), own, |builder| builder).contains("5m 36s"));
    let of_batches = Messages::raw().keyed(KeyFrom::message_id()).policy(policy);
    let of_batches = of_batches.run_batch(2, |_: Vec<_>| std::future::pending::<Vec<HandlerResult>>());
    assert!(world.refused(Policy::new(), of_batches, |builder| builder).contains("5m 36s"));
}

#[test]
fn a_retention_shorter_than_the_redelivery_is_refused_unless_allowed_by_name() {
    let world = World::with(rocketmq());
    let job = Job::ok(&world, ms(10));
    let policy = Policy::new().retain(secs(3_600));
    let refused = world.refused(policy, job.by_id(), |builder| builder);
    assert!(refused.contains("1h") && refused.contains("4h 45m 40s"), "{refused}");
    let (_, executor) = world.executor(policy);
    let builder = idempotent_mq::Consumer::builder(world.broker.connect(), "billing", &executor);
    assert!(builder.allow_short_retention().build(job.by_id()).is_ok());
    // Without a limit of the broker's the schedule is what counts.
    let world = World::new();
    let refused = world.refused(policy, job.by_id(), |builder| builder.schedule(Schedule::rocketmq()));
    assert!(refused.contains("4h 45m 40s"), "{refused}");
}

#[tokio::test]
async fn a_message_that_always_fails_is_run_17_times_and_dead_lettered_as_it_came() {
    let world = World::new();
    let job = Job::ends(&world, ms(10), again);
    let schedule = Schedule::exponential(secs(1), secs(60));
    let process = world.consume_by(Policy::new(), job.by_id(), |builder| builder.schedule(schedule)).await;
    let mut delivery = Delivery::new(Position::of("orders"), b"\xff{not json\0".to_vec()).id("m1");
    for (name, value) in [("trace", &b"\x00\xfe"[..]), ("trace", b"two"), ("a", b"")] {
        delivery = delivery.header(name, value);
    }
    let sent = delivery.clone();
    world.broker.send_delivery("m1", delivery);
    world.clock.advance(secs(3_600)).await;
    assert_eq!((job.runs(), world.broker.left()), (17, 0));
    // 1, 2, 4 … 60 s, by attempts.
    let delays: Vec<_> = world.broker.retries("m1").iter().map(|retry| retry.after.as_secs()).collect();
    assert_eq!(delays, [1, 2, 4, 8, 16, 32, 60, 60, 60, 60, 60, 60, 60, 60, 60, 60]);
    let attempts: Vec<_> = world.broker.retries("m1").iter().map(|retry| retry.attempt).collect();
    assert_eq!(attempts, (2..=17).collect::<Vec<_>>());
    let [(dead, letter)] = &world.broker.dead()[..] else { panic!("one dead letter") };
    assert_eq!((&dead.body, &dead.headers), (&sent.body, &sent.headers));
    assert_eq!((letter.attempts, letter.deaths), (17, 1));
    assert_eq!(&*letter.reason, "given up after 17 runs: no stock");
    let began = idempotent_testkit::VirtualClock::START;
    assert_eq!(letter.first_at, began);
    assert_eq!(letter.last_at, began + Duration::from_millis(job.times().last().copied().unwrap() as u64 + 10));
    // Copies of one dead letter have one id.
    let record = world.record("m1").await.unwrap();
    assert_eq!(letter.id.as_deref(), Some(&*format!("{}:{}", key_of("m1"), record.fencing)));
    assert_eq!((process.counts().retried, process.counts().dead_lettered, process.counts().alerts), (16, 1, 1));
    // A late duplicate is not run, and is the same dead letter.
    world.broker.send("m1", "{}");
    world.clock.advance(secs(1)).await;
    assert_eq!((job.runs(), world.broker.dead().len()), (17, 2));
    assert_eq!(world.broker.dead()[1].1.id, letter.id);
    // An operator lets it go again: it runs, and from its first attempt.
    let admin = admin(&world.store);
    let forgotten = admin.forget(&key_of("m1"), record.fencing, false, secs(60)).await.unwrap();
    assert_eq!(forgotten, Settled::Done);
    world.broker.send("m1", "{}");
    world.clock.advance(ms(20)).await;
    assert_eq!((job.runs(), job.seen().last().unwrap().attempt), (18, Some(1)));
}

fn admin(store: &impl Store) -> &dyn idempotent_core::Admin {
    let StoreCapabilities { admin, .. } = store.capabilities();
    admin.unwrap()
}

#[tokio::test]
async fn a_dead_letter_that_cannot_be_saved_goes_back_unchanged_with_one_death_more() {
    let world = World::new();
    let job = Job::ends(&world, ms(10), |_| HandlerResult::Never { reason: "no such article".into() });
    world.consume(Policy::new(), job.by_id()).await;
    // As an adapter reads it from a dead letter queue.
    let mut delivery = Delivery::new(Position::of("orders.dead"), b"{}".to_vec()).id("m1").header("a", "b");
    (delivery.deaths, delivery.first_at) = (2, Some(Timestamp(17)));
    world.broker.send_delivery("m1", delivery.clone());
    world.clock.advance(ms(20)).await;
    let (dead, letter) = world.broker.dead().remove(0);
    assert_eq!((dead.body, dead.headers), (delivery.body, delivery.headers));
    assert_eq!((letter.deaths, letter.first_at, &*letter.reason), (3, Timestamp(17), "no such article"));
    assert_eq!(world.record("m1").await.unwrap().state.kind(), StateKind::Failed);
}

#[tokio::test]
async fn a_message_that_kills_its_process_is_dead_lettered_as_crashed_after_three_deaths() {
    let world = World::new();
    let policy = Policy::new().lease(secs(2)).max_retries(2).in_flight_delay(ms(500));
    let mut deaths = 0;
    world.broker.send("m1", "{}");
    loop {
        // Each run takes its process along.
        let job = Job::ok(&world, secs(60));
        let process = world.consume(policy, job.by_id()).await;
        for _ in 0..100 {
            if job.runs() > 0 || !world.broker.dead().is_empty() {
                break;
            }
            world.clock.advance(ms(100)).await;
        }
        if !world.broker.dead().is_empty() {
            break;
        }
        assert_eq!(job.runs(), 1);
        deaths += 1;
        process.kill().await;
        world.broker.cut();
    }
    assert_eq!(deaths, 3);
    let (_, letter) = world.broker.dead().remove(0);
    assert!(letter.reason.contains("crashed"), "{}", letter.reason);
    assert_eq!(letter.attempts, 3);
}

#[tokio::test]
async fn a_message_that_kills_its_process_before_its_claim_is_dead_lettered_by_the_brokers_count() {
    let capabilities = SourceCapabilities::new(DelaySupport::Any).counts();
    let world = World::with(Ways { capabilities, marks: false, ..Ways::default() });
    let job = Job::ok(&world, ms(10));
    // A process that decodes this body dies. The test checks that the consumer dead-letters the message without
    // decoding it.
    let read = std::sync::Arc::new(std::sync::atomic::AtomicU32::new(0));
    let reads = read.clone();
    let handling = Messages::decoded(move |_: &Delivery| {
        reads.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        Ok::<(), idempotent_mq::Undecodable>(())
    })
    .keyed(KeyFrom::message_id())
    .run(job.function());
    world.broker.send("m1", "{}");
    for _ in 0..4 {
        // The process dies directly after it received the message.
        let mut source = world.broker.connect();
        let _ = idempotent_mq::Source::receive(&mut source, 1).await.unwrap();
        world.broker.cut();
    }
    let process = world.consume_by(Policy::new(), handling, |builder| builder.max_deliveries(4)).await;
    world.clock.settle().await;
    let (_, letter) = world.broker.dead().remove(0);
    assert_eq!(&*letter.reason, "delivered 5 times without a result, the limit is 4");
    assert_eq!((read.load(std::sync::atomic::Ordering::SeqCst), job.runs()), (0, 0));
    assert_eq!(process.counts().dead_lettered, 1);
}

#[tokio::test]
async fn without_any_count_of_the_brokers_attempts_are_counted_at_the_claim() {
    let world = World::with(Ways { marks: false, ..Ways::default() });
    let job = Job::ends(&world, ms(10), again);
    let schedule = Schedule::list([1, 10, 100].map(secs));
    let policy = Policy::new().max_retries(2);
    let process = world.consume_by(policy, job.by_id(), |builder| builder.schedule(schedule)).await;
    world.broker.send("m1", "{}");
    world.clock.advance(secs(60)).await;
    assert_eq!((job.runs(), world.broker.dead().len(), process.counts().dead_lettered), (3, 1, 1));
    // The schedule goes by the claim's count.
    assert_eq!(job.times(), [0, 1_010, 11_020]);
    // What such a broker cannot do is not asked of it.
    let refused = world.refused(Policy::new(), job.by_id(), |builder| builder.max_deliveries(5));
    assert!(refused.contains("does not say how often"), "{refused}");
}

#[tokio::test]
async fn attempts_are_counted_per_message_when_code_after_a_good_run_fails() {
    use idempotent_core::{Call, DefaultReply, Executor, Handler, Identity, Json, Rejection};
    let world = World::new();
    let policy = Policy::new().max_retries(2);
    let charged = Job::ok(&world, ms(10));
    let charges = charged.clone();
    // charge().await?; mail().await?
    let handling = Messages::raw().annotated(move |message| {
        let charges = charges.clone();
        async move {
            let call = Call::new(Identity::new(Scene::Mq, "charge", &message.delivery.id));
            let handler = Handler::<DefaultReply, Json, _, _>::new(move || async move {
                charges.run(message).await;
                Ok::<(), Rejection>(())
            });
            Executor::current().unwrap().run(call, handler).await.unwrap();
            Err::<(), _>("the mail server is away")
        }
    });
    let log = Log::answering(SenderState::Unconfirmed);
    let process = world.consume_by(policy, handling, |builder| builder.log(log.clone())).await;
    world.broker.send("m1", "{}");
    world.clock.advance(secs(60)).await;
    assert_eq!((charged.runs(), world.broker.dead().len(), process.counts().retried), (1, 1, 2));
    let concluded: Vec<_> = log.concluded().into_iter().map(|(_, result)| result).collect();
    assert_eq!(concluded, [DeliveryResult::Failed, DeliveryResult::Failed, DeliveryResult::DeadLettered]);
    let letter = &world.broker.dead()[0].1;
    assert!(letter.reason.contains("failed 3 times"), "{letter:?}");
    assert_eq!((letter.attempts, &letter.id), (3, &None));
}

#[tokio::test]
async fn a_dead_letter_that_the_broker_refuses_comes_again_and_is_never_acknowledged() {
    use idempotent_mq::SourceErrorKind;
    let (world, job, process) = ending(ms(10), never).await;
    world.broker.fail_settling(SourceErrorKind::Fatal, 1);
    world.broker.send("m1", "{}");
    world.clock.advance(ms(20)).await;
    let story = world.broker.story("m1");
    assert!(matches!(&story[1..], [(_, What::Refused(_)), (_, What::Settled(Settlement::Retry(_)))]), "{story:?}");
    assert_eq!((process.counts().deferred, process.counts().dead_lettered), (1, 0));
    world.clock.advance(secs(301)).await;
    assert_eq!((world.broker.dead().len(), job.runs()), (1, 1));
}

#[tokio::test]
async fn the_retries_of_messages_that_fail_together_are_spread_by_the_jitter() {
    let world = World::new();
    let job = Job::ends(&world, ms(10), again);
    let schedule = Schedule::list([secs(100)]).jitter(50);
    world.consume_by(Policy::new(), job.by_id(), |builder| builder.schedule(schedule)).await;
    world.broker.send_numbered(20);
    world.clock.advance(secs(1)).await;
    let names = (0..20).map(|number| world.broker.retries(&format!("m{number}")));
    let delays: std::collections::BTreeSet<_> = names.flatten().map(|retry| retry.after).collect();
    assert!(delays.len() > 10 && delays.iter().all(|delay| (secs(50)..=secs(150)).contains(delay)), "{delays:?}");
}

#[tokio::test]
async fn a_dead_letter_has_the_id_of_its_run_even_if_the_record_cannot_be_read() {
    let world = World::new();
    let job = Job::ends(&world, ms(10), again);
    let process = world.consume(Policy::new().max_retries(0), job.by_id()).await;
    process.store.fail_before(StoreOperation::Peek, 10);
    world.broker.send("m1", "{}");
    world.clock.advance(secs(10)).await;
    let fencing = world.record("m1").await.unwrap().fencing;
    assert_eq!(world.broker.dead()[0].1.id, Some(format!("{}:{fencing}", key_of("m1"))));
}

#[tokio::test]
async fn an_attempt_that_a_producer_numbers_0_does_not_count() {
    let world = World::new();
    let job = Job::ok(&world, ms(10));
    world.consume(Policy::new(), job.keyed(KeyFrom::header("absent"))).await;
    let mut delivery = Delivery::new(Position::of("orders"), b"{}".to_vec());
    delivery.attempt = Some(0);
    world.broker.send_delivery("m1", delivery);
    world.clock.advance(secs(10)).await;
    let letter = &world.broker.dead()[0].1;
    assert_eq!((letter.attempts, job.runs()), (1, 0), "{letter:?}");
}

#[tokio::test]
async fn a_message_that_succeeds_at_the_alerting_attempt_gives_no_alert() {
    for (succeeds_at, alerts) in [(3, 0), (4, 1)] {
        let world = World::new();
        let ends = if succeeds_at == 3 {
            |run| if run < 3 { again(run) } else { HandlerResult::Done }
        } else {
            |run| if run < 4 { again(run) } else { HandlerResult::Done }
        };
        let job = Job::ends(&world, ms(10), ends);
        let process = world.consume_by(Policy::new(), job.by_id(), |builder| builder.alert_after(3)).await;
        world.broker.send("m1", "{}");
        world.clock.advance(secs(60)).await;
        assert_eq!((job.runs(), process.counts().alerts), (succeeds_at, alerts));
    }
}
