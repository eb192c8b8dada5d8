//! No key, id, header or body in any line of any log, at any level. By itself: the listener is the whole process's.
#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    missing_docs,
    missing_debug_implementations
)]

#[path = "suite/broker.rs"]
mod broker;
#[path = "suite/log.rs"]
mod log;
#[path = "suite/world.rs"]
mod world;

use idempotent_core::{Call, DefaultReply, Executor, Handler, Identity, Json, Policy, Rejection, Scene};
use idempotent_harness::LogLines;
use idempotent_mq::{Delivery, HandlerResult, KeyFrom, Messages, Position, SenderState, SourceErrorKind, Undecodable};

use crate::world::{World, again, ending, ms, never, secs};

const SECRET: &str = "hush-4111-1111";

#[tokio::test]
async fn no_key_id_header_or_body_is_in_any_line_of_a_log() {
    let listener = LogLines::default();
    tracing::subscriber::set_global_default(listener.clone()).unwrap();
    let world = World::new();
    let handling = Messages::decoded(|delivery: &Delivery| match delivery.headers.first("how") {
        Some(b"unreadable") => Err(Undecodable("no such version".to_owned())),
        _ => Ok(String::from_utf8_lossy(&delivery.body).into_owned()),
    })
    .keyed(KeyFrom::message_id())
    .fingerprint_body()
    .run(|message| async move {
        match message.delivery.headers.first("how") {
            Some(b"fails") => HandlerResult::Again { after: None, error: "no stock".into() },
            Some(b"error") => return Err(format!("{} failed", message.body)),
            Some(b"panics") => panic!("as told"),
            _ => HandlerResult::Done,
        };
        Ok(())
    });
    let mut process = world.consume(Policy::new().max_retries(3), handling.clone()).await;
    for how in ["", "unreadable", "fails", "error", "panics"] {
        let delivery = Delivery::new(Position::of("orders"), SECRET.into()).id(format!("{SECRET}{how}"));
        let delivery = delivery.business_key(SECRET).header("how", how).header("secret", SECRET);
        world.broker.send_delivery(how, delivery.clone());
        world.broker.send_delivery("again", delivery);
    }
    world.broker.fail_settling(SourceErrorKind::Transient, 1);
    world.clock.advance(secs(60)).await;
    world.broker.fail_settling(SourceErrorKind::Gone, 1);
    world.broker.fail_receiving(SourceErrorKind::Transient, 1);
    world.broker.send("x", "y");
    let other = Delivery::new(Position::of("orders"), b"other".to_vec()).id(SECRET);
    world.broker.send_delivery("mismatch", other);
    world.clock.advance(secs(1)).await;
    process.store.down();
    world.broker.send_delivery("down", Delivery::new(Position::of("orders"), SECRET.into()).id(format!("{SECRET}z")));
    world.clock.advance(secs(1)).await;
    process.stop().await;
    world.clock.advance(ms(100)).await;
    assert!(process.task.is_finished());
    // Another one, which a refusal ends.
    let process = world.consume(Policy::new(), handling).await;
    world.broker.fail_settling(SourceErrorKind::Fatal, 1);
    world.broker.send_delivery("last", Delivery::new(Position::of("orders"), SECRET.into()).id(format!("{SECRET}l")));
    world.clock.advance(secs(60)).await;
    assert!(process.task.is_finished());

    // Field by field, without what is zero or absent.
    let log = listener.text();
    let line = |text: &str| log.lines().find(|line| line.contains(text)).unwrap().to_owned();
    let (dead, stopped) = (line("dead letter"), line("consumer stopped"));
    assert!(dead.contains(" source=\"orders\"") && !dead.contains("Position") && !dead.contains("None"), "{dead}");
    assert!(stopped.contains(" received=") && !stopped.contains("=0") && !stopped.contains("Counts"), "{stopped}");

    // What happened after a refusal, and not what was decided. The line of the refusal has the name of the settlement as its field `how`.
    for (ends, refusals, happened) in [
        (again as fn(u32) -> HandlerResult, 1, "dead letter"),
        (again, 2, "consumer: a delivery was not settled"),
        (never, 1, "retry"),
        (never, 2, "consumer: a delivery was not settled"),
    ] {
        let before = listener.text().len();
        let (world, _, process) = ending(ms(10), ends).await;
        world.broker.fail_settling(SourceErrorKind::Refused, refusals);
        world.broker.send_delivery("g", Delivery::new(Position::of("orders"), SECRET.into()).id(SECRET));
        world.clock.advance(secs(10)).await;
        process.task.abort();
        let said = listener.text()[before..].to_owned();
        let lines: Vec<_> = said.lines().filter(|line| line.contains(" source=\"orders\"")).collect();
        assert!(lines.len() == 1 && lines[0].contains(&format!("message={happened}")), "{happened}: {said}");
        assert_eq!(said.matches("message=settling refused").count(), refusals, "{said}");
        let why = match happened {
            "dead letter" => "and a retry is impossible: this message is refused: as told",
            "retry" => "the dead letter was refused",
            _ => "the broker delivers the message again",
        };
        assert!(lines[0].contains(why), "{said}");
    }

    // The consumer logs once about a handler without the attribute, and not about a handler that is declared
    // unprotected.
    let world = World::new();
    let forgotten = Messages::raw().annotated(async |_| HandlerResult::Done);
    let process = world.consume(Policy::new(), forgotten).await;
    let warnings = || listener.text().matches("annotate the called function").count();
    for (message, count) in [("a", 1), ("b", 2)] {
        world.broker.send_delivery(message, Delivery::new(Position::of("orders"), SECRET.into()).id(SECRET));
        world.clock.advance(secs(1)).await;
        assert_eq!((process.counts().acked, process.counts().unprotected, warnings()), (count, count, 1));
    }
    // Nor about one that fails, or that runs a call of its own.
    let world = World::new();
    let failing = Messages::raw().annotated(async |_| Err::<(), _>("no stock"));
    let process = world.consume(Policy::new(), failing).await;
    world.broker.send_delivery("e", Delivery::new(Position::of("orders"), SECRET.into()).id(SECRET));
    world.clock.advance(secs(1)).await;
    process.task.abort();
    let world = World::new();
    let claiming = Messages::raw().annotated(async |_| {
        let call = Call::new(Identity::new(Scene::Mq, "orders", SECRET));
        let handler = Handler::<DefaultReply, Json, _, _>::new(async || Ok::<_, Rejection>(()));
        Executor::current().unwrap().run(call, handler).await
    });
    let process = world.consume(Policy::new(), claiming).await;
    world.broker.send_delivery("f", Delivery::new(Position::of("orders"), SECRET.into()).id(SECRET));
    world.clock.advance(secs(1)).await;
    assert_eq!((process.counts().acked, process.counts().unprotected), (1, 0));
    let world = World::new();
    let process = world.consume(Policy::new(), Messages::raw().unprotected(async |_| HandlerResult::Done)).await;
    world.broker.send_delivery("c", Delivery::new(Position::of("orders"), SECRET.into()).id(SECRET));
    world.clock.advance(secs(1)).await;
    assert_eq!(process.counts().unprotected, 1);

    for state in [SenderState::Consumed, SenderState::Void] {
        let world = World::new();
        let log = log::Log::answering(state);
        let handling = Messages::raw().keyed(KeyFrom::message_id()).run(|_: idempotent_mq::Message<()>| async {});
        let process = world.consume_by(Policy::new(), handling, |builder| builder.log(log.clone())).await;
        world.broker.send_delivery("d", Delivery::new(Position::of("orders"), SECRET.into()).id(SECRET));
        world.clock.advance(secs(1)).await;
        assert_eq!(process.counts().skipped, 1);
    }

    assert_eq!(warnings(), 1);
    let said = listener.text();
    for wanted in [
        "message=dead letter",
        "message=given back",
        "skipped: the message log says that this consumer has consumed the message",
        "skipped: the message log says that the message is void",
        "message=retry",
        "message=settled",
        "settling failed",
        "was not settled",
        "settling refused",
        "receiving failed",
        "the store is down",
        "fails repeatedly",
    ] {
        assert!(said.contains(wanted), "{wanted}: the listener hears\n{said}");
    }
    for line in said.lines() {
        assert!(!line.contains(SECRET), "{line}");
    }
}
