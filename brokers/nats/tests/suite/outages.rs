//! Killed processes, a killed server and cut connections.
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

use idempotent_harness::proxy::Proxy;
use idempotent_mq::{KeyFrom, Message, MessageHandler, Messages, Settlement, Source, SourceErrorKind};

use crate::world::{World, ms, one, receive, retry, settle, until};

/// Returns a handler that counts its runs, one for each message.
pub(crate) fn counting() -> (MessageHandler, Arc<AtomicU32>) {
    let runs = Arc::<AtomicU32>::default();
    let counted = runs.clone();
    let handling = Messages::raw().keyed(KeyFrom::message_id()).run(move |_: Message<()>| {
        counted.fetch_add(1, SeqCst);
        async { Ok::<_, String>(()) }
    });
    (handling, runs)
}

#[tokio::test]
async fn messages_of_a_killed_consumer_are_taken_over_and_each_runs_once() {
    let world = World::new().await;
    let mut dead = world.source().await;
    for number in 0..20 {
        world.send(&number.to_string()).await;
    }
    let held = receive(&mut dead, 8).await;
    assert!(!held.is_empty());
    drop((held, dead));
    let (handling, runs) = counting();
    let running = world.run(world.source().await, handling);
    until("all messages are acknowledged", async || world.open().await.0 == 0).await;
    let counts = running.ended().await.unwrap();
    assert_eq!((runs.load(SeqCst), counts.acked), (20, 20), "{counts:?}");
}

#[tokio::test]
async fn held_and_delayed_messages_survive_a_killed_server_and_run_once() {
    let world = World::new().await;
    let (handling, runs) = counting();
    let mut source = world.source().await;
    let settler = source.settler();
    for body in ["delayed", "held"] {
        world.send(body).await;
    }
    let delayed = one(&mut source).await;
    settle(&settler, &delayed, retry(ms(300))).await;
    let held = one(&mut source).await;
    world.server.kill();
    let lost = settler.settle(&held.0, &held.1, &Settlement::Ack).await.unwrap_err();
    assert_eq!(lost.kind(), SourceErrorKind::Transient, "{lost}");
    world.server.restart();
    drop((held, source));
    let running = world.run(world.source().await, handling);
    until("both are acknowledged", async || world.open().await.0 == 0).await;
    running.ended().await.unwrap();
    assert_eq!(runs.load(SeqCst), 2);
}

#[tokio::test]
async fn a_consumer_continues_after_its_server_was_killed_and_started_again() {
    let world = World::new().await;
    let (handling, runs) = counting();
    let running = world.run(world.source().await, handling);
    world.send("before").await;
    until("the first message ran", async || runs.load(SeqCst) == 1).await;
    world.server.kill();
    world.server.restart();
    until("the server confirms a message", async || world.sent("after").await).await;
    // A message without a confirmation may have been stored, too.
    until("the second message ran", async || runs.load(SeqCst) > 1).await;
    running.ended().await.unwrap();
}

#[tokio::test]
async fn a_consumer_continues_after_its_connection_was_cut_often() {
    let world = World::new().await;
    let between = Proxy::start(&world.server.address()).await;
    let (handling, runs) = counting();
    let source = World::builder_at(format!("nats://{}", between.address())).connect().await.unwrap();
    let running = world.run(source, handling);
    for number in 0..10 {
        world.send(&number.to_string()).await;
        until("the message ran", async || runs.load(SeqCst) > number).await;
        between.cut_all();
    }
    until("all messages are acknowledged", async || world.open().await.0 == 0).await;
    running.ended().await.unwrap();
    assert_eq!(runs.load(SeqCst), 10);
}

#[tokio::test]
async fn a_consumer_ends_with_the_reason_after_its_consumer_was_deleted() {
    let world = World::new().await;
    let (handling, runs) = counting();
    let running = world.run(world.source().await, handling);
    world.send("one").await;
    until("the message ran", async || runs.load(SeqCst) == 1).await;
    let stream = world.client.get_stream("ORDERS").await.unwrap();
    stream.delete_consumer("billing").await.unwrap();
    let error = running.ended_by_itself().await.unwrap_err();
    assert!(error.kind() == SourceErrorKind::Fatal && error.to_string().contains("deleted"), "{error}");
}

#[tokio::test]
async fn a_killed_consumer_leaves_its_keys_to_the_next_one() {
    let world = World::new().await;
    world.source().await;
    world.send("one").await;
    let (handling, _) = counting();
    let running = world.run(world.source().await, handling);
    running.kill().await;
    let (handling, _) = counting();
    let next = world.run(world.source().await, handling);
    until("the message is acknowledged", async || world.open().await.0 == 0).await;
    next.ended().await.unwrap();
}

#[tokio::test]
async fn only_deliveries_without_a_settlement_count() {
    let world = World::new().await;
    let mut source = world.source().await;
    let settler = source.settler();
    world.send("one").await;
    for _ in 0..5 {
        let held = one(&mut source).await;
        assert_eq!(held.0.delivered, Some(1), "a deferral must not use up `max_deliveries`");
        settle(&settler, &held, retry(ms(1))).await;
    }
    drop(one(&mut source).await);
    let (delivery, _) = one(&mut source).await;
    assert_eq!((delivery.delivered, delivery.attempt), (Some(2), Some(2)), "as after a crash");
}
