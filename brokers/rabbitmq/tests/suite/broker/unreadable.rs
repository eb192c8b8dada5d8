//! A message that the client cannot read. A forwarder that cuts the connection before a harmless message stands for the
//! client.
use std::error::Error;
use std::sync::Arc;

use idempotent_core::{MemoryStore, Policy};
use idempotent_mq::{Received, Redrive, Settlement, Source, SourceErrorKind};
use idempotent_rabbitmq::{Queue, RabbitDeadLetters, RabbitSource};

use crate::broker::world::{Log, ManualSource, Process, SERVER, World, done, executor, named, until, within};
use crate::forwarder::Forwarder;

const UNREADABLE: &[u8] = b"unreadable to the client";

async fn behind_forwarder(queue: Queue) -> (Forwarder, RabbitSource) {
    let forwarder = Forwarder::cutting_at(SERVER.address(), UNREADABLE).await;
    let url = format!("amqp://guest:guest@127.0.0.1:{}/%2f", forwarder.port());
    (forwarder, RabbitSource::builder(&url, queue).build().unwrap())
}

/// Sends the messages 1 to 3, an unreadable one, and 4.
async fn send_around(world: &World) {
    for id in ["1", "2", "3"] {
        world.send_id(id).await;
    }
    world.send(UNREADABLE, named("unreadable")).await;
    world.send_id("4").await;
}

#[tokio::test]
async fn messages_before_an_unreadable_one_are_settled_one_by_one_and_the_error_names_the_queue_and_the_remedy() {
    let world = World::new("unreadable").await;
    let (_forwarder, source) = behind_forwarder(Queue::classic("unreadable")).await;
    source.declare().await.unwrap();
    send_around(&world).await;
    let mut source = ManualSource(source, "unreadable".to_owned());
    let mut vain = 0;
    while vain < 2 {
        // The deliveries are dropped unsettled.
        vain += u32::from(!matches!(within("an end", source.0.receive(10)).await, Ok(Received::Deliveries(_))));
    }
    let mut first = source.next().await;
    until("the others are ready", async || (world.count("unreadable").await == 4).then_some(())).await;
    for id in ["1", "2", "3"] {
        assert_eq!(first.0.id.as_deref(), Some(id));
        source.settle(&first, Settlement::Ack).await.unwrap();
        if id != "3" {
            first = source.next().await;
        }
    }
    drop(first);
    for end in 0..4 {
        match within("an end", source.0.receive(10)).await {
            // The session that settled the messages.
            Ok(Received::Revoked(_)) if end == 0 => {}
            Err(error) => {
                let text = error.to_string();
                assert_eq!(error.kind(), SourceErrorKind::Transient);
                assert!(text.contains("`unreadable`") && text.contains("with another client"), "{text}");
                assert!(error.source().is_some(), "no cause: {text}");
            }
            other => panic!("{other:?}"),
        }
    }
    // The remedy.
    until("it is returned", async || (world.count("unreadable").await == 2).then_some(())).await;
    assert_eq!(world.take("unreadable").await.unwrap().data, UNREADABLE);
    let next = until("the next one", async || match within("an answer", source.0.receive(10)).await {
        Ok(Received::Deliveries(mut some)) => Some(some.remove(0)),
        _ => None,
    });
    let next = next.await;
    assert_eq!(next.0.id.as_deref(), Some("4"));
    source.settle(&next, Settlement::Ack).await.unwrap();
    drop(next);
    // The prefetch limit is raised after as many settled messages as it allows.
    for id in 5..15 {
        world.send_id(&id.to_string()).await;
        let next = source.next().await;
        assert_eq!(next.0.id, Some(id.to_string()));
        source.settle(&next, Settlement::Ack).await.unwrap();
    }
    for id in 15..20 {
        world.send_id(&id.to_string()).await;
    }
    let held = [source.next().await, source.next().await, source.next().await];
    until("all are held", async || (world.count("unreadable").await == 0).then_some(())).await;
    assert_eq!(held.map(|(delivery, _)| delivery.id.unwrap()), ["15", "16", "17"]);
}

#[tokio::test]
async fn a_redrive_over_an_unreadable_letter_ends_with_an_error_that_names_the_queue() {
    let world = World::new("unreadable.letters").await;
    let (forwarder, source) = behind_forwarder(Queue::classic("unreadable.letters")).await;
    source.declare().await.unwrap();
    world.send_to("", "unreadable.letters.dead", UNREADABLE, named("unreadable")).await;
    let url = format!("amqp://guest:guest@127.0.0.1:{}/%2f", forwarder.port());
    let mut letters = RabbitDeadLetters::new(&url, "unreadable.letters").unwrap();
    let redriven = within("the end", Redrive::new().run(&mut letters)).await;
    let text = redriven.failed.unwrap().to_string();
    assert!(text.contains("`unreadable.letters`") && text.contains("with another client"), "{text}");
    assert_eq!(redriven.put_back, 0);
}

#[tokio::test]
async fn a_consumer_counts_the_sessions_that_an_unreadable_message_ends_and_acknowledges_the_messages_before_it() {
    for (name, queue) in [
        ("unreadable.classic", Queue::classic("unreadable.classic")),
        ("unreadable.quorum", Queue::quorum("unreadable.quorum")),
    ] {
        let world = World::new(name).await;
        let (forwarder, source) = behind_forwarder(queue).await;
        source.declare().await.unwrap();
        send_around(&world).await;
        let (log, store) = (Arc::new(Log::default()), Arc::new(MemoryStore::new()));
        let process = Process::start(source, "billing", &executor(&store, Policy::new()), log.by_id(done), |b| b);
        process.until("the messages before it", |counts| counts.acked >= 3).await;
        // The forwarder counts a cut after the client sees it.
        process.until("errors", |counts| counts.source_errors >= 3 && forwarder.cuts() >= 3).await;
        // A quorum queue delivers the messages behind it, too.
        if name == "unreadable.classic" {
            until("it is returned", async || (world.count(name).await == 2).then_some(())).await;
            assert_eq!((log.runs(), world.take(name).await.unwrap().data.as_slice()), (3, UNREADABLE));
            until("the message behind it", async || (log.runs() == 4).then_some(())).await;
        }
        process.stop().await;
    }
}
