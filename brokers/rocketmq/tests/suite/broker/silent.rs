//! A server that keeps its connections and answers nothing: each call ends.
use std::time::Duration;

use idempotent_core::Timestamp;
use idempotent_harness::proxy::Proxy;
use idempotent_harness::servers::RocketServer;
use idempotent_mq::{DeadLetter, DeadLetters, Retry, Settlement, Source, SourceError, SourceErrorKind};
use idempotent_rocketmq::{RocketDeadLetters, RocketSource};

use crate::broker::world::{World, until, within};

fn because(reason: &'static str) -> Settlement {
    Settlement::DeadLetter(DeadLetter::because(reason, Timestamp(9)))
}

/// Checks that a call ends, and fails.
async fn ends<T>(what: &str, call: impl Future<Output = Result<T, SourceError>>) {
    let error = within(what, call).await.map(drop).unwrap_err();
    assert_eq!(error.kind(), SourceErrorKind::Transient, "{what}: {error}");
}

#[tokio::test]
async fn each_settlement_that_needs_a_silent_broker_ends_and_succeeds_afterwards() {
    let world = World::alone("silent-1").await;
    let mut consumer = world.consumer();
    world.publish(world.message("m", "b")).await;
    let held = consumer.next().await;
    world.blocking(RocketServer::pause).await;
    let retry = Settlement::Retry(Retry::after(Duration::from_secs(1), Timestamp(17)));
    for how in [&retry, &Settlement::GiveBack, &because("no stock")] {
        ends(how.name(), consumer.0.settler().settle(&held.0, &held.1, how)).await;
    }
    world.blocking(RocketServer::resume).await;
    consumer.insist(&held, &Settlement::Ack).await;
    world.emptied().await;
    world.blocking(RocketServer::pause).await;
    within("the end", consumer.0.close()).await;
    world.blocking(RocketServer::resume).await;
}

#[tokio::test]
async fn each_call_for_the_dead_letters_of_a_silent_broker_ends_and_succeeds_afterwards() {
    let world = World::alone("silent-2").await;
    let mut consumer = world.consumer();
    for id in ["1", "2"] {
        world.publish(world.message(id, "b")).await;
        let held = consumer.next().await;
        consumer.settle(&held, &because("no stock")).await.unwrap();
    }
    consumer.0.close().await;
    let open = || RocketDeadLetters::new(world.server.url(), &world.topic, &world.group).unwrap();
    let (mut read, mut fresh) = (open(), open());
    until("the letters", async || (read.count().await.unwrap() == 2).then_some(())).await;
    read.next().await.unwrap().unwrap();
    world.blocking(RocketServer::pause).await;
    ends("putting back", read.put_back()).await;
    ends("removing", read.discard()).await;
    ends("counting", read.count()).await;
    ends("reading", fresh.next()).await;
    within("the end", fresh.close()).await;
    world.blocking(RocketServer::resume).await;
    until("the letters", async || read.count().await.ok().filter(|count| *count > 0)).await;
    until("a letter", async || read.next().await.ok().flatten()).await;
    until("it is removed", async || read.discard().await.ok()).await;
    read.close().await;
}

#[tokio::test]
async fn opening_ends_while_the_broker_or_the_name_server_is_silent() {
    let world = World::alone("silent-3").await;
    let proxy = Proxy::start(&world.server.name_server()).await;
    let silent = format!("rocketmq://{}", proxy.address());
    proxy.silence();
    let open = |url: String| async move { RocketSource::connect(url, "silent-3", "silent-3-group").await };
    ends("connecting to the name server", open(silent.clone())).await;
    let mut source = RocketSource::builder(&*silent, "silent-3", "silent-3-group").build().unwrap();
    ends("receiving", source.receive(1)).await;
    let mut letters = RocketDeadLetters::new(&*silent, "silent-3", "silent-3-group").unwrap();
    ends("counting", letters.count()).await;
    world.blocking(RocketServer::pause).await;
    ends("connecting to the broker", open(world.server.url())).await;
    ends("declaring", async {
        RocketSource::builder(world.server.url(), "other", "other-group").build().unwrap().declare(1).await
    })
    .await;
    world.blocking(RocketServer::resume).await;
    open(world.server.url()).await.unwrap();
}
