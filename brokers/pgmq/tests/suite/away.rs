//! A server that is away for a while: runs that end, drains and messages that are sent in this time.
use std::sync::atomic::Ordering::SeqCst;

use idempotent_mq::{OutboundMessage, PublishErrorKind};
use idempotent_pgmq::PgmqPublisher;

use crate::publisher::publish;
use crate::world::{Database, Running, World, counting, gated, until};

/// The number of messages that a consumer holds.
const HELD: &str = "SELECT count(*) FROM pgmq.q_orders WHERE vt > clock_timestamp()";

#[tokio::test]
async fn a_run_that_ends_while_the_server_is_away_does_not_repeat() {
    let world = World::of(Database::alone().await).await;
    let (handling, runs, gate) = gated();
    let consumer = world.consumer(world.source().await).build(handling).unwrap();
    let counters = consumer.counters();
    let running = Running::new(consumer);
    world.send("1").await;
    until("the handler runs", async || runs.load(SeqCst) == 1).await;
    world.database.server.kill();
    let before = counters.counts().source_errors;
    gate.close();
    until("the message cannot be acknowledged", async || counters.counts().source_errors > before).await;
    world.database.server.restart();
    until("the message is acknowledged", async || world.open().await == 0).await;
    let counts = running.ended().await.unwrap();
    assert_eq!((runs.load(SeqCst), counts.acked > 0), (1, true), "{counts:?}");
}

#[tokio::test]
async fn a_drain_ends_while_the_server_is_away_and_each_message_runs_once() {
    for is_killed in [true, false] {
        let world = World::of(Database::alone().await).await;
        let source = world.source().await;
        for number in 0..8 {
            world.send(&number.to_string()).await;
        }
        let (handling, runs, gate) = gated();
        let running = world.run(source, handling);
        until("four run, and four wait", async || runs.load(SeqCst) == 4 && world.number(HELD).await == 8).await;
        let server = &world.database.server;
        if is_killed {
            server.kill()
        } else {
            server.pause()
        }
        gate.close();
        let counts = running.ended().await.unwrap();
        assert_eq!(counts.received, counts.ended(), "{counts:?}");
        if is_killed {
            server.restart()
        } else {
            server.resume()
        }
        let (handling, later) = counting();
        let next = world.run(world.source().await, handling);
        until("all messages are acknowledged", async || world.open().await == 0).await;
        next.ended().await.unwrap();
        assert_eq!(runs.load(SeqCst) + later.load(SeqCst), 8, "killed: {is_killed}, {counts:?}");
    }
}

#[tokio::test]
async fn a_message_to_a_silent_server_is_unconfirmed_and_runs_once_when_it_is_sent_again() {
    let world = World::of(Database::alone().await).await;
    let source = world.source().await;
    let publisher = PgmqPublisher::new(world.url());
    let message = || OutboundMessage::new("orders", "m-1", "1");
    // The publisher is connected.
    publish(&publisher, OutboundMessage::new("orders", "m-0", "0")).await.unwrap();
    world.database.server.pause();
    let error = publish(&publisher, message()).await.unwrap_err();
    assert_eq!(error.kind(), PublishErrorKind::Unconfirmed, "{error}");
    world.database.server.resume();
    until("the message is confirmed", async || publish(&publisher, message()).await.is_ok()).await;
    let (handling, runs) = counting();
    let running = world.run(source, handling);
    until("all messages are acknowledged", async || world.open().await == 0).await;
    running.ended().await.unwrap();
    assert_eq!(runs.load(SeqCst), 2);
}
