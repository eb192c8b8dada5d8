//! Broken connections and unavailable servers.
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use idempotent_harness::proxy::{Fault, Proxy};
use idempotent_harness::servers::RedisServer;
use idempotent_mq::{HandlerResult, KeyFrom, Message, MessageHandler, Messages};

use crate::world::{World, until};

fn counting() -> (Arc<AtomicU64>, MessageHandler) {
    let runs = Arc::new(AtomicU64::new(0));
    let counted = runs.clone();
    let handling = Messages::raw().keyed(KeyFrom::message_id()).run(move |_: Message<()>| {
        counted.fetch_add(1, SeqCst);
        async { HandlerResult::Done }
    });
    (runs, handling)
}

fn url(proxy: &Proxy) -> String {
    format!("redis://{}", proxy.address())
}

#[tokio::test]
async fn a_lost_acknowledgement_is_resent_and_the_entry_runs_once() {
    for fault in [Fault::CutBeforeSend, Fault::CutAfterApply, Fault::CutMidReply] {
        let world = World::new();
        let proxy = Proxy::start(&world.server.address()).await;
        let (runs, handling) = counting();
        let source = World::builder_at(&url(&proxy), "a").connect().await.unwrap();
        proxy.fail_next_with("XACK\r\n", fault);
        world.send("1");
        let running = world.run(source, handling, 8, 6);
        until("it is acknowledged", async || running.counters.counts().acked == 1).await;
        assert_eq!((proxy.met(), runs.load(SeqCst), world.pending().len()), (1, 1, 0), "{fault:?}");
        assert_eq!(running.ended().await.unwrap().ended(), 1);
    }
}

#[tokio::test]
async fn a_finished_entry_of_a_dead_consumer_is_acknowledged_by_another() {
    let world = World::new();
    let proxy = Proxy::start(&world.server.address()).await;
    let (runs, handling) = counting();
    proxy.fail_next_with("XACK\r\n", Fault::HalfOpen);
    world.send("1");
    let first = world.run(World::builder_at(&url(&proxy), "a").connect().await.unwrap(), handling.clone(), 8, 6);
    proxy.until_met(1).await;
    first.kill().await;
    assert_eq!(world.pending(), [("a".to_owned(), 1)]);
    let second = world.run(world.source("b").await, handling, 8, 6);
    until("it is acknowledged", async || world.pending().is_empty()).await;
    assert_eq!((runs.load(SeqCst), second.ended().await.unwrap().acked), (1, 1));
}

#[tokio::test]
async fn an_entry_with_a_lost_delivery_is_redelivered() {
    let world = World::new();
    let proxy = Proxy::start(&world.server.address()).await;
    let (runs, handling) = counting();
    let source = World::builder_at(&url(&proxy), "a").connect().await.unwrap();
    world.send("1");
    proxy.fail_next_with("XREADGROUP\r\n", Fault::CutAfterApply);
    let running = world.run(source, handling, 8, 6);
    until("it is acknowledged", async || running.counters.counts().acked == 1).await;
    assert_eq!((proxy.met(), runs.load(SeqCst), world.pending().len()), (1, 1, 0));
}

#[tokio::test]
async fn a_source_continues_after_a_server_restart() {
    let world = World::on(RedisServer::builder().aof().arg("--appendfsync").arg("always").start());
    let (runs, handling) = counting();
    let running = world.run(world.source("a").await, handling, 8, 6);
    world.send("1");
    until("the first is acknowledged", async || running.counters.counts().acked == 1).await;
    world.server.kill();
    until("it is noticed", async || running.counters.counts().source_errors > 0).await;
    world.server.restart();
    world.send("2");
    until("the second is acknowledged", async || running.counters.counts().acked == 2).await;
    assert_eq!((runs.load(SeqCst), world.pending().len()), (2, 0));
    assert_eq!(running.ended().await.unwrap().unsettled, 0);
}

#[tokio::test]
async fn a_server_that_has_become_a_replica_is_reconnected() {
    let world = World::new();
    let (runs, handling) = counting();
    let running = world.run(world.source("a").await, handling, 8, 6);
    // A replica of an unreachable primary.
    world.server.command(&["REPLICAOF", "127.0.0.1", "1"]);
    until("it is noticed", async || running.counters.counts().source_errors > 0).await;
    world.server.command(&["REPLICAOF", "NO", "ONE"]);
    world.send("1");
    until("it is acknowledged", async || running.counters.counts().acked == 1).await;
    assert_eq!(runs.load(SeqCst), 1);
}
