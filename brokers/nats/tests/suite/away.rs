//! A server that is away for a while: runs that end, drains and messages that are sent in this time.
use std::sync::atomic::Ordering::SeqCst;

use idempotent_harness::servers::NatsServer;
use idempotent_mq::{OutboundMessage, PublishErrorKind};
use idempotent_nats::JetStreamPublisher;

use crate::publisher::publish;
use crate::world::{Running, World, counting, gated, until};

#[tokio::test]
async fn a_run_that_ends_while_the_server_is_away_does_not_repeat() {
    let world = World::on(NatsServer::start_durable()).await;
    let (handling, runs, gate) = gated();
    let consumer = world.consumer(world.source().await).build(handling).unwrap();
    let counters = consumer.counters();
    let running = Running::new(consumer);
    world.send("one").await;
    until("the handler runs", async || runs.load(SeqCst) == 1).await;
    world.server.kill();
    let before = counters.counts().source_errors;
    gate.close();
    until("the message cannot be acknowledged", async || counters.counts().source_errors > before).await;
    world.server.restart();
    until("the message is acknowledged", async || world.open().await.0 == 0).await;
    let counts = running.ended().await.unwrap();
    assert_eq!((runs.load(SeqCst), counts.acked > 0), (1, true), "{counts:?}");
}

#[tokio::test]
async fn a_drain_ends_while_the_server_is_away_and_each_message_runs_once() {
    for is_killed in [true, false] {
        let world = World::on(NatsServer::start_durable()).await;
        let source = world.source().await;
        for number in 0..8 {
            world.send(&number.to_string()).await;
        }
        let (handling, runs, gate) = gated();
        let running = world.run(source, handling);
        until("four run, and four wait", async || runs.load(SeqCst) == 4 && world.open().await == (8, 0)).await;
        if is_killed {
            world.server.kill()
        } else {
            world.server.pause()
        }
        gate.close();
        let counts = running.ended().await.unwrap();
        assert_eq!(counts.received, counts.ended(), "{counts:?}");
        if is_killed {
            world.server.restart()
        } else {
            world.server.resume()
        }
        let (handling, later) = counting();
        let next = world.run(world.source().await, handling);
        until("all messages are acknowledged", async || world.open().await.0 == 0).await;
        next.ended().await.unwrap();
        assert_eq!(runs.load(SeqCst) + later.load(SeqCst), 8, "killed: {is_killed}, {counts:?}");
    }
}

#[tokio::test]
async fn a_message_to_a_silent_server_is_unconfirmed_and_stored_once_when_it_is_sent_again() {
    let world = World::new().await;
    world.source().await;
    let publisher = JetStreamPublisher::new(world.server.url());
    let message = |id: &str| OutboundMessage::new("orders.new", id, "body");
    publish(&publisher, message("m-1")).await.unwrap();
    world.server.pause();
    let error = publish(&publisher, message("m-2")).await.unwrap_err();
    assert_eq!(error.kind(), PublishErrorKind::Unconfirmed, "{error}");
    world.server.resume();
    until("the message is confirmed", async || publish(&publisher, message("m-2")).await.is_ok()).await;
    assert_eq!(world.open().await.0, 2);
}
