//! Concurrency and order of messages.
use std::sync::{Arc, Mutex};
use std::time::Duration;

use idempotent_core::{Clock, Policy};
use idempotent_mq::{
    DelaySupport, Delivery, HandlerResult, KeyFrom, MessageHandler, Messages, Position, Settlement, SourceCapabilities,
};

use crate::broker::Ways;
use crate::world::{World, ms, secs};

type Log = Arc<Mutex<Vec<String>>>;

/// Messages `KEY NUMBER`, each 100 ms long; `!` at the end fails the first time.
fn ordered(world: &World, log: &Log) -> MessageHandler {
    let (clock, log) = (world.clock.clone(), log.clone());
    let failed = Arc::new(Mutex::new(Vec::new()));
    Messages::raw().ordered_by(KeyFrom::header("user")).keyed(KeyFrom::message_id()).run(move |message| {
        let (clock, log, failed) = (clock.clone(), log.clone(), failed.clone());
        async move {
            let id = message.delivery.id.clone().unwrap();
            log.lock().unwrap().push(format!("+{id}"));
            clock.sleep_until(clock.now() + ms(100)).await;
            log.lock().unwrap().push(format!("-{id}"));
            let mut failed = failed.lock().unwrap();
            if id.ends_with('!') && !failed.contains(&id) {
                failed.push(id);
                return HandlerResult::Again { after: None, error: "as told".into() };
            }
            HandlerResult::Done
        }
    })
}

fn send(world: &World, names: &[&str]) {
    for name in names {
        let position = Position::of("orders").partition(0).offset(name);
        world.broker.send_delivery(name, Delivery::new(position, Vec::new()).id(*name).header("user", &name[..1]));
    }
}

#[tokio::test]
async fn messages_of_one_key_run_in_arrival_order_and_messages_of_other_keys_run_concurrently() {
    let world = World::new();
    let log = Log::default();
    world.consume(Policy::new(), ordered(&world, &log)).await;
    send(&world, &["a1", "a2", "b1", "a3", "b2"]);
    world.clock.advance(secs(1)).await;
    let said = log.lock().unwrap().join(" ");
    assert_eq!(said, "+a1 +b1 -a1 +a2 -b1 +b2 -a2 +a3 -b2 -a3");
    assert_eq!(world.broker.left(), 0);
}

#[tokio::test]
async fn without_an_order_all_run_side_by_side() {
    let world = World::new();
    let job = crate::world::Job::ok(&world, ms(100));
    world.consume_by(Policy::new(), job.by_id(), |builder| builder.concurrency(3)).await;
    send(&world, &["a1", "a2", "a3", "a4"]);
    world.clock.advance(ms(150)).await;
    assert_eq!(job.times(), [0, 0, 0, 100]);
}

#[tokio::test]
async fn a_source_that_keeps_order_receives_the_messages_after_a_failed_one_of_the_same_key_again() {
    let capabilities = SourceCapabilities::new(DelaySupport::Any).keeps_order();
    let world = World::with(Ways { capabilities, ..Ways::default() });
    let log = Log::default();
    let process = world.consume(Policy::new(), ordered(&world, &log)).await;
    send(&world, &["a1!", "a2", "a3", "b1"]);
    world.clock.advance(secs(3)).await;
    let said: Vec<_> = log.lock().unwrap().iter().filter(|said| said.starts_with('-')).cloned().collect();
    assert_eq!(said.join(" "), "-a1! -b1 -a1! -a2 -a3");
    let counts = process.counts();
    assert_eq!((counts.retried, counts.deferred, world.broker.left()), (1, 2, 0));
}

#[tokio::test]
async fn a_message_without_its_ordering_key_is_dead_lettered() {
    let world = World::new();
    let log = Log::default();
    world.consume(Policy::new(), ordered(&world, &log)).await;
    world.broker.send("m1", "{}");
    world.clock.settle().await;
    assert!(world.broker.dead()[0].1.reason.contains("header user"), "{:?}", world.broker.dead()[0].1.reason);
}

#[tokio::test]
async fn revoked_messages_are_neither_run_nor_settled_and_active_runs_are_recorded() {
    let capabilities = SourceCapabilities::new(DelaySupport::Any).keep_alive(ms(10));
    let world = World::with(Ways { capabilities, ..Ways::default() });
    let log = Log::default();
    let process = world.consume(Policy::new(), ordered(&world, &log)).await;
    send(&world, &["a1", "a2", "b1"]);
    let elsewhere = Position::of("orders").partition(1).offset("c1");
    world.broker.send_delivery("c1", Delivery::new(elsewhere, Vec::new()).id("c1").header("user", "c"));
    world.clock.advance(ms(50)).await;
    world.broker.revoke(Position::of("orders").partition(0));
    world.clock.settle().await;
    // What waits makes room at once.
    assert_eq!(process.counts().revoked, 1);
    world.clock.advance(secs(1)).await;
    assert_eq!(log.lock().unwrap().join(" "), "+a1 +b1 +c1 -a1 -b1 -c1");
    for name in ["a1", "a2", "b1"] {
        assert_eq!(world.broker.settlements(name), [], "{name}");
    }
    assert_eq!(world.broker.settlements("c1"), [Settlement::Ack]);
    let counts = process.counts();
    assert_eq!((counts.revoked, counts.acked, counts.ended()), (3, 1, 4));
    assert_eq!(world.broker.strangers(), 0);
    // The next delivery of a1 is a duplicate.
    assert_eq!(world.record("a1").await.unwrap().state.kind(), idempotent_core::StateKind::Consumed);
    assert!(world.record("a2").await.is_none());
}

#[tokio::test]
async fn deliveries_that_wait_for_their_turn_are_kept_alive_from_when_they_were_received() {
    let hold = Duration::from_secs(10);
    let capabilities = SourceCapabilities::new(DelaySupport::UpTo(hold)).keep_alive(hold / 3).counts();
    let world = World::with(Ways { capabilities, hold: Some(hold), ..Ways::default() });
    let job = crate::world::Job::ok(&world, secs(6));
    // The time of a delivery starts when the consumer receives the message.
    world.broker.send_numbered(8);
    world.clock.advance(secs(60)).await;
    let process = world.consume_by(Policy::new(), job.by_id(), |builder| builder.concurrency(6).prefetch(8)).await;
    world.clock.advance(secs(60)).await;
    assert_eq!((job.runs(), world.broker.left(), process.counts().received), (8, 0, 8));
    // All the room there is, and that is the prefetch at first.
    assert_eq!(world.broker.rooms()[0], 8);
    let kept = world.broker.events().iter().filter(|event| event.what == crate::broker::What::KeptAlive).count();
    // All eight after 3.3 s; the last two, which waited for 6 s, twice more.
    assert_eq!(kept, 12);
}

#[tokio::test]
async fn one_keeping_alive_that_hangs_loses_no_delivery() {
    let hold = Duration::from_secs(9);
    let capabilities = SourceCapabilities::new(DelaySupport::UpTo(hold)).keep_alive(hold / 3).counts();
    let world = World::with(Ways { capabilities, hold: Some(hold), ..Ways::default() });
    let job = crate::world::Job::ok(&world, secs(30));
    let process = world.consume(Policy::new(), job.by_id()).await;
    world.broker.send("m1", "{}");
    world.clock.advance(secs(4)).await;
    world.broker.hang_keep_alive(1);
    world.clock.advance(secs(30)).await;
    assert_eq!((world.broker.delivered("m1").len(), process.counts().source_errors), (1, 1));
    assert!(world.broker.is_acked("m1"));
}

#[tokio::test]
async fn a_message_revoked_during_a_settlement_retry_is_released() {
    let world = World::new();
    let job = crate::world::Job::ok(&world, ms(10));
    let process = world.consume(Policy::new(), job.by_id()).await;
    world.broker.fail_settling(idempotent_mq::SourceErrorKind::Transient, 1_000);
    world.broker.send("m1", "{}");
    world.clock.advance(ms(500)).await;
    world.broker.revoke(Position::of("orders"));
    world.clock.advance(secs(1)).await;
    let counts = process.counts();
    assert_eq!((counts.revoked, counts.unsettled, counts.ended()), (1, 0, 1));
}
