//! Invalid and expired messages, and invalid settings.
use std::sync::Arc;

use idempotent_core::{Disposition, Policy, StateKind};
use idempotent_mq::{Delivery, HandlerResult, KeyFrom, Messages, Position, Settlement, Undecodable};
use serde::Deserialize;

use crate::broker::{Ways, What};
use crate::world::{Job, World, again, consuming, ms, secs};

#[derive(Deserialize)]
struct Order {
    number: u64,
}

const ORDER: &[u8] = br#"{"number": 17}"#;

fn orders(job: &Arc<Job>) -> idempotent_mq::MessageHandler {
    Messages::json().keyed(KeyFrom::body("order.number", |order: &Order| order.number)).run(job.function())
}

#[tokio::test]
async fn a_body_that_cannot_be_read_is_dead_lettered_at_once_byte_for_byte() {
    let world = World::new();
    let job = Job::ok(&world, ms(10));
    let process = world.consume(Policy::new(), orders(&job)).await;
    let body = b"{\"number\": \"card 4111\"}\xff\0".to_vec();
    world.broker.send_delivery("bad", Delivery::new(Position::of("orders"), body.clone()).id("bad"));
    world.broker.send("good", r#"{"number": 17}"#);
    world.clock.advance(ms(20)).await;
    let (dead, letter) = world.broker.dead().remove(0);
    assert_eq!((dead.body, letter.id, letter.attempts), (body, None, 1));
    assert!(letter.reason.starts_with("the body cannot be read: "), "{}", letter.reason);
    assert!(!letter.reason.contains("4111"), "{}", letter.reason);
    let claims = world.store.log().iter().filter(|call| call.verb == idempotent_testkit::StoreOperation::Claim).count();
    assert_eq!((claims, job.runs(), world.broker.retries("bad").len()), (1, 1, 0));
    let counts = process.counts();
    assert_eq!((counts.undecodable, counts.dead_lettered, counts.acked), (1, 1, 1));
}

#[tokio::test]
async fn a_decoder_or_key_that_panics_costs_its_message_and_not_the_consumer() {
    let world = World::new();
    let handling = Messages::decoded(|delivery: &Delivery| match &delivery.body[..] {
        b"decode" => panic!("as told"),
        b"refuse" => Err(Undecodable("no such version".to_owned())),
        body => Ok(body.to_vec()),
    })
    .keyed(KeyFrom::body("key", |body: &Vec<u8>| if body == b"key" { panic!("as told") } else { body.clone() }))
    .run(|_| async { HandlerResult::Done });
    let process = world.consume(Policy::new(), handling).await;
    for body in ["decode", "refuse", "key", "good"] {
        world.broker.send(body, body);
    }
    world.clock.settle().await;
    let reasons: Vec<_> = world.broker.dead().into_iter().map(|(_, letter)| letter.reason).collect();
    assert_eq!(reasons[0], "the body cannot be read: the decoder or the key function panicked");
    assert_eq!(reasons[1], "the body cannot be read: no such version");
    assert_eq!(reasons[2], reasons[0]);
    assert_eq!((process.counts().acked, process.task.is_finished()), (1, false));
}

#[tokio::test]
async fn a_message_without_a_key_is_dead_lettered_and_never_given_one() {
    let (world, job, process) = consuming(ms(10)).await;
    for name in ["one", "two"] {
        world.broker.send_delivery(name, Delivery::new(Position::of("orders"), b"{}".to_vec()));
    }
    world.clock.advance(ms(20)).await;
    assert_eq!((job.runs(), process.counts().dead_lettered), (0, 2));
    let reason = &world.broker.dead()[0].1.reason;
    assert!(reason.contains("idempotency key is empty") && reason.contains("message id"), "{reason}");
}

#[tokio::test]
async fn a_message_without_a_key_runs_unprotected_only_if_that_is_permitted() {
    let world = World::new();
    let job = Job::ok(&world, ms(10));
    let process = world.consume(Policy::new(), job.keyed(KeyFrom::message_id().or_unprotected())).await;
    for _ in 0..2 {
        world.broker.send_delivery("none", Delivery::new(Position::of("orders"), b"{}".to_vec()));
        world.broker.send("m1", "{}");
    }
    world.clock.advance(secs(2)).await;
    assert_eq!((job.runs(), process.counts().unprotected, process.counts().acked), (3, 2, 4));
}

#[tokio::test]
async fn a_key_that_is_too_long_is_dead_lettered_with_the_remedy() {
    let world = World::new();
    let job = Job::ok(&world, ms(10));
    world.consume(Policy::new(), job.by_id()).await;
    let delivery = Delivery::new(Position::of("orders"), Vec::new()).id("x".repeat(1_025));
    world.broker.send_delivery("long", delivery);
    world.clock.settle().await;
    let reason = &world.broker.dead()[0].1.reason;
    assert!(reason.contains("1025 bytes, limit 1024") && reason.contains("key_hash"), "{reason}");
}

#[tokio::test]
async fn a_message_past_its_own_time_is_acknowledged_and_neither_read_nor_run() {
    let world = World::new();
    let job = Job::ok(&world, secs(2));
    let handling = Messages::json().keyed(KeyFrom::message_id()).run(job.function::<Order>());
    let process = world.consume_by(Policy::new(), handling, |builder| builder.concurrency(1)).await;
    let at = |secs: u64, body: &[u8]| {
        let mut delivery = Delivery::new(Position::of("orders"), body.to_vec());
        delivery.expires_at = Some(idempotent_testkit::VirtualClock::START + std::time::Duration::from_secs(secs));
        delivery
    };
    world.broker.send_delivery("past", at(0, b"no order").id("past"));
    world.broker.send_delivery("first", at(1, ORDER).id("first"));
    // In time when it came, and not when it was its turn.
    world.broker.send_delivery("second", at(1, ORDER).id("second"));
    world.clock.advance(secs(10)).await;
    assert_eq!((job.runs(), process.counts().expired, process.counts().acked), (1, 2, 1));
    assert_eq!(process.counts().undecodable, 0);
    for name in ["past", "second"] {
        assert_eq!((world.broker.settlements(name), world.record(name).await), (vec![Settlement::Ack], None));
    }
}

#[tokio::test]
async fn a_message_that_its_adapter_cannot_read_is_dead_lettered_with_the_reason_and_does_not_run() {
    let (world, job, process) = consuming(ms(10)).await;
    let mut delivery = Delivery::new(Position::of("orders"), b"{}".to_vec());
    delivery.unreadable = Some("a header has a name that is not UTF-8".into());
    world.broker.send_delivery("raw", delivery);
    world.clock.settle().await;
    let (_, letter) = world.broker.dead().remove(0);
    assert_eq!((job.runs(), &*letter.reason), (0, "a header has a name that is not UTF-8"));
    assert_eq!((process.counts().undecodable, process.counts().dead_lettered), (1, 1));
}

#[tokio::test]
async fn a_message_id_used_again_for_other_content_is_dead_lettered() {
    let world = World::new();
    let job = Job::ok(&world, ms(10));
    let handling = Messages::raw().keyed(KeyFrom::message_id()).fingerprint_body().run(job.function());
    let process = world.consume(Policy::new(), handling).await;
    world.broker.send("m1", "{}");
    world.clock.advance(ms(20)).await;
    world.broker.send("m1", "{}");
    world.broker.send("m1", "{\"other\": true}");
    world.clock.advance(ms(20)).await;
    let (dead, letter) = world.broker.dead().remove(0);
    assert_eq!((&dead.body[..], job.runs(), process.counts().acked), (&b"{\"other\": true}"[..], 1, 2));
    assert!(letter.reason.contains("another payload"), "{}", letter.reason);
    // Not the id of the run that has the key: two such payloads must not collapse into one dead letter.
    assert_eq!((letter.id, letter.attempts), (None, 1));
}

#[test]
fn acknowledging_what_is_in_flight_is_refused_without_an_outbox() {
    let world = World::new();
    let policy = Policy::new().on_in_flight(idempotent_core::OnInFlight::Ack);
    let own = Messages::raw().keyed(KeyFrom::message_id()).policy(policy).run(|_| async { HandlerResult::Done });
    let refused = world.refused(Policy::new(), own, |builder| builder);
    assert!(refused.contains("outbox"), "{refused}");
}

#[test]
fn settings_that_do_not_fit_are_refused_with_their_numbers() {
    let world = World::new();
    let job = Job::ok(&world, ms(10));
    let refused = |more: fn(_) -> _| world.refused(Policy::new(), job.by_id(), more);
    assert!(refused(|builder| builder.concurrency(8).prefetch(4)).contains("prefetch is 4"));
    assert!(refused(|builder| builder.concurrency(0)).contains("concurrency is 0"));
    // Beyond these an addition or a semaphore would panic in the middle of a run.
    assert!(refused(|builder| builder.concurrency(usize::MAX)).contains("must not be above 100000"));
    assert!(refused(|builder| builder.concurrency(100_001)).contains("concurrency is 100001"));
    assert!(refused(|builder| builder.prefetch(usize::MAX)).contains("must not be above 1000000"));
    assert!(refused(|builder| builder.grace(std::time::Duration::MAX)).contains("must not be above 7 days"));
    let most = |builder: idempotent_mq::ConsumerBuilder<_>| {
        builder.concurrency(100_000).prefetch(1_000_000).grace(std::time::Duration::from_secs(7 * 86_400))
    };
    let (_, executor) = world.executor(Policy::new());
    let builder = idempotent_mq::Consumer::builder(world.broker.connect(), "billing", &executor);
    most(builder).build(job.by_id()).unwrap();
    assert!(refused(|builder| builder.schedule(idempotent_mq::Schedule::list([]))).contains("empty list"));
    let hot = idempotent_mq::Schedule::list([std::time::Duration::ZERO]);
    assert!(world.refused(Policy::new(), job.by_id(), |builder| builder.schedule(hot)).contains("hot loop"));
    let (_, executor) = world.executor(Policy::new());
    let nameless = idempotent_mq::Consumer::builder(world.broker.connect(), "", &executor).build(job.by_id());
    assert!(nameless.unwrap_err().to_string().contains("scope"));
}

#[tokio::test]
async fn two_groups_that_get_one_message_each_run_it() {
    let world = World::new();
    let job = Job::ok(&world, ms(10));
    for group in ["billing", "shipping"] {
        let broker = crate::broker::Broker::new(&world.clock, Ways::default());
        world.consume_from(broker.connect(), group, Policy::new(), job.by_id(), |builder| builder).await;
        broker.send("m1", "{}");
        world.clock.advance(ms(20)).await;
        assert!(broker.is_acked("m1"), "{group}");
    }
    assert_eq!(job.runs(), 2);
}

#[tokio::test]
async fn each_delivery_has_exactly_one_terminal_count_and_a_failing_key_one_alert() {
    let world = World::new();
    let failing = Job::ends(&world, ms(10), again);
    let (runs, clock) = (failing.clone(), world.clock.clone());
    let handling = Messages::raw().keyed(KeyFrom::message_id()).run(move |message| {
        let (runs, clock) = (runs.clone(), clock.clone());
        async move {
            use idempotent_core::Clock;
            match message.delivery.id.as_deref() {
                Some("fails") => runs.run(message).await,
                Some("never") => HandlerResult::Never { reason: "no".into() },
                Some("panics") => panic!("as told"),
                _ => {
                    clock.sleep_until(clock.now() + ms(30)).await;
                    HandlerResult::Done
                }
            }
        }
    });
    let mut process =
        world.consume_by(Policy::new().max_retries(5), handling, |builder| builder.concurrency(3).grace(ms(10))).await;
    world.broker.send_all(&["ok", "fails", "never", "panics", "ok", "ok2", "ok2", "fails"]);
    world.broker.send_delivery("none", Delivery::new(Position::of("orders"), Vec::new()));
    world.clock.advance(secs(120)).await;
    world.broker.send("ok3", "{}");
    world.clock.settle().await;
    process.stop().await;
    world.clock.advance(ms(20)).await;
    let counts = process.task.await.unwrap().unwrap();
    assert_eq!(counts.received, counts.ended(), "{counts:?}");
    let deliveries = world.broker.events().iter().filter(|event| event.what == What::Delivered).count();
    assert_eq!((counts.received as usize, counts.given_back, counts.unsettled), (deliveries, 1, 0));
    // "fails" and "panics", at their third run each, and once.
    assert_eq!((counts.alerts, failing.runs()), (2, 6));
}

#[tokio::test]
async fn a_disposition_says_what_a_handler_wants_in_full() {
    let world = World::new();
    let handling = Messages::raw().keyed(KeyFrom::message_id()).run(|message| async move {
        match message.delivery.id.as_deref() {
            Some("dead") => Disposition::DeadLetter { reason: "no such article".into() },
            _ => Disposition::Ack,
        }
    });
    world.consume(Policy::new(), handling).await;
    world.broker.send_all(&["dead", "done", "dead"]);
    world.clock.advance(secs(2)).await;
    assert_eq!(world.broker.dead().len(), 2);
    assert_eq!(&*world.broker.dead()[0].1.reason, "no such article");
    assert_eq!(world.record("dead").await.unwrap().state.kind(), StateKind::Failed);
}
