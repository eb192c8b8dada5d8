//! Broken connections and unavailable servers.
use std::sync::atomic::Ordering::SeqCst;

use idempotent_harness::proxy::{Fault, Proxy};
use idempotent_harness::servers::RedisServer;
use idempotent_testkit::broker::testing::counting;

use crate::world::{World, until};

#[tokio::test]
async fn a_lost_acknowledgement_is_resent_and_the_entry_runs_once() {
    for fault in [Fault::CutBeforeSend, Fault::CutAfterApply, Fault::CutMidReply] {
        let world = World::new();
        let proxy = Proxy::start(&world.server.address()).await;
        let (handling, runs) = counting();
        let source = World::builder_at(&proxy.url(), "a").connect().await.unwrap();
        proxy.fail_next_with("XACK\r\n", fault);
        world.send("1");
        let running = world.run(source, handling, 8, 6);
        until("it is acknowledged", async || running.counters.counts().acked == 1).await;
        assert_eq!((proxy.met(), runs.load(SeqCst), world.pending().len()), (1, 1, 0), "{fault:?}");
        assert_eq!(running.ended().await.unwrap().ended(), 1);
    }
}

#[tokio::test]
async fn an_entry_with_a_lost_delivery_is_redelivered() {
    let world = World::new();
    let proxy = Proxy::start(&world.server.address()).await;
    let (handling, runs) = counting();
    let source = World::builder_at(&proxy.url(), "a").connect().await.unwrap();
    world.send("1");
    proxy.fail_next_with("XREADGROUP\r\n", Fault::CutAfterApply);
    let running = world.run(source, handling, 8, 6);
    until("it is acknowledged", async || running.counters.counts().acked == 1).await;
    assert_eq!((proxy.met(), runs.load(SeqCst), world.pending().len()), (1, 1, 0));
}

#[tokio::test]
async fn a_source_continues_after_a_server_restart() {
    let world = World::on(RedisServer::builder().aof().arg("--appendfsync").arg("always").start());
    let (handling, runs) = counting();
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
    let (handling, runs) = counting();
    let running = world.run(world.source("a").await, handling, 8, 6);
    // A replica of an unreachable primary.
    world.server.command(&["REPLICAOF", "127.0.0.1", "1"]);
    until("it is noticed", async || running.counters.counts().source_errors > 0).await;
    world.server.command(&["REPLICAOF", "NO", "ONE"]);
    world.send("1");
    until("it is acknowledged", async || running.counters.counts().acked == 1).await;
    assert_eq!(runs.load(SeqCst), 1);
}
