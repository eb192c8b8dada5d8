//! Errors of a source have the right kind and contain no password.
use std::error::Error;
use std::sync::Arc;

use idempotent_core::{MemoryStore, Policy, Timestamp};
use idempotent_mq::{DeadLetter, Received, Settlement, Source, SourceError, SourceErrorKind};
use idempotent_rabbitmq::{Queue, RabbitSource};
use lapin::options::QueueDeclareOptions;
use lapin::types::{AMQPValue, FieldTable};

use crate::broker::world::{Log, Process, SERVER, World, again, executor, ms, until, within};

/// Returns the error of a first `receive`. The short form of the source returns the same.
async fn refused(url: &str, queue: Queue) -> (SourceErrorKind, String) {
    let short = within("an answer", RabbitSource::connect(url, queue.clone())).await.unwrap_err();
    let mut source = RabbitSource::builder(url, queue).build().unwrap();
    let error: SourceError = within("an answer", source.receive(1)).await.unwrap_err();
    assert_eq!((short.kind(), short.to_string()), (error.kind(), error.to_string()));
    (error.kind(), format!("{error} {error:?} {:?} {source:?}", error.source().map(ToString::to_string)))
}

#[tokio::test]
async fn a_missing_or_different_queue_and_a_wrong_password_are_fatal_and_an_unreachable_port_is_not() {
    let world = World::new("refusals").await;
    let (kind, text) = refused(&SERVER.url(), Queue::existing("refusals.missing")).await;
    assert!(kind == SourceErrorKind::Fatal && text.contains("refusals.missing"), "{text}");
    world.declare("refusals").await;
    let (kind, text) = refused(&SERVER.url(), Queue::classic("refusals").argument("x-max-length", 5)).await;
    assert!(kind == SourceErrorKind::Fatal && text.contains("x-max-length"), "{text}");
    assert_eq!(
        RabbitSource::connect(":", Queue::classic("refusals")).await.unwrap_err().kind(),
        SourceErrorKind::Fatal
    );
    let wrong = SERVER.url().replace("guest:guest", "guest:s3cret");
    let (kind, text) = refused(&wrong, Queue::classic("refusals")).await;
    assert!(kind == SourceErrorKind::Fatal && !text.contains("s3cret"), "{kind:?} {text}");
    let (kind, text) = refused("amqp://guest:s3cret@127.0.0.1:1/%2f", Queue::classic("refusals")).await;
    assert!(kind == SourceErrorKind::Transient && !text.contains("s3cret"), "{text}");
}

#[tokio::test]
async fn a_delivery_of_a_closed_channel_does_not_settle_the_same_number_on_the_next() {
    let mut world = World::alone("stale").await;
    let mut old = world.opened(Queue::classic("stale")).await;
    world.send_id("a").await;
    let stale = old.next().await;
    tokio::task::spawn_blocking(|| SERVER.close_all_connections()).await.unwrap();
    assert!(matches!(within("the end", old.0.receive(1)).await.unwrap(), Received::Revoked(_)));
    world.reconnect().await;
    world.delete("stale").await;
    let mut new = world.opened(Queue::classic("stale")).await;
    world.send_id("b").await;
    let fresh = new.next().await;
    let _ = old.settle(&stale, Settlement::Ack).await;
    new.settle(&fresh, Settlement::GiveBack).await.unwrap();
    let again = new.next().await;
    assert_eq!(again.0.id.as_deref(), Some("b"), "delivery 1 of the other channel was acknowledged");
}

#[tokio::test]
async fn a_dead_letter_queue_with_other_settings_refuses_the_source_at_its_start() {
    let world = World::new("foreign").await;
    let mut limited = FieldTable::default();
    limited.insert("x-max-length".into(), AMQPValue::LongInt(1));
    let durable = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
    world.admin.queue_declare("foreign.dead".into(), durable, limited).await.unwrap();
    let (kind, text) = refused(&SERVER.url(), Queue::classic("foreign")).await;
    assert!(kind == SourceErrorKind::Fatal && text.contains("foreign.dead"), "{text}");
}

#[tokio::test]
async fn a_dead_letter_with_a_deleted_queue_is_not_acknowledged_and_succeeds_at_the_second_attempt() {
    let world = World::new("undead").await;
    let mut source = world.opened(Queue::classic("undead")).await;
    for id in ["a", "b"] {
        world.send_id(id).await;
    }
    let (first, second) = (source.next().await, source.next().await);
    let letter = Settlement::DeadLetter(DeadLetter::because("why", Timestamp(9)));
    source.settle(&first, letter.clone()).await.unwrap();
    world.delete("undead.dead").await;
    let error = source.settle(&second, letter.clone()).await.unwrap_err();
    assert_eq!(error.kind(), SourceErrorKind::Transient, "{error}");
    source.settle(&second, letter).await.unwrap();
    assert_eq!(world.dead().await.properties.message_id().as_ref().unwrap().as_str(), "b");
}

#[tokio::test]
async fn a_retry_queue_with_other_settings_ends_the_consumer_and_its_message_is_given_back() {
    let world = World::new("no-delays").await;
    world.declare("no-delays").await;
    world.declare("no-delays.retry.100").await;
    let executor = executor(&Arc::new(MemoryStore::new()), Policy::new());
    let log = Arc::new(Log::default());
    let process = Process::start(world.source(), "billing", &executor, log.by_id(again), |b| b);
    let counters = process.counters.clone();
    world.send_id("m").await;
    let error = process.ended().await.unwrap_err();
    let cause = error.source().unwrap().to_string();
    assert_eq!(error.kind(), SourceErrorKind::Fatal);
    assert!(error.to_string().contains("what differs") && cause.contains("no-delays.retry.100"), "{error}: {cause}");
    let counts = counters.counts();
    assert_eq!((log.runs(), counts.given_back, counts.unsettled, counts.acked), (1, 1, 0, 0));
    until("it is in its queue", async || (world.count("no-delays").await == 1).then_some(())).await;
}

#[tokio::test]
async fn a_receive_that_is_dropped_while_it_connects_leaves_no_second_subscription() {
    let world = World::new("half-open").await;
    world.declare("half-open").await;
    for number in 0..40 {
        let mut source = world.source();
        // The call is dropped at a different step each time.
        drop(tokio::time::timeout(ms(number * 4), source.receive(10)).await);
        let id = format!("m-{number}");
        world.send_id(&id).await;
        let Received::Deliveries(came) = within("a delivery", source.receive(10)).await.unwrap() else {
            panic!("nothing is revoked")
        };
        let (delivery, tag) = &came[0];
        assert_eq!(
            (delivery.id.as_deref(), delivery.redelivered),
            (Some(&*id), false),
            "the message was delivered to another subscription first"
        );
        source.settler().settle(delivery, tag, &Settlement::Ack).await.unwrap();
        source.close().await;
        until("no subscription", async || (world.consumers(&world.queue).await? == 0).then_some(())).await;
    }
}
