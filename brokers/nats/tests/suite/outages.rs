//! A killed server, a deleted consumer, and the count of deliveries.
use std::sync::atomic::Ordering::SeqCst;

use idempotent_mq::{Settlement, Source, SourceErrorKind};

use crate::world::{World, counting, ms, one, retry, settle, until};

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
