//! The outbox with a delay queue, which keeps one message of an id.
use std::time::Duration;

use idempotent::delay_queue::{DelayProducer, DelayQueue, DelaySource};
use idempotent::{Executor, MemoryStore};
use idempotent_harness::proxy::{Fault, Proxy};
use idempotent_harness::servers::RedisServer;

use crate::outbox::world::{World, once, round};

async fn queue(url: &str) -> DelayQueue {
    DelayQueue::builder(url, "payments").response_timeout(Duration::from_secs(1)).connect().await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_resend_is_merged_into_what_is_kept_and_brings_back_what_is_not() {
    let server = RedisServer::start();
    let proxy = Proxy::start(&server.address()).await;
    let world = World::new().await;
    let direct = queue(&server.url()).await;
    let relay = world.relay(DelayProducer::new(&queue(&proxy.url()).await));
    let ready = async || direct.counts().await.unwrap().ready;

    world.put("payments", "usual").await;
    assert_eq!((round(&relay).await.sent, ready().await), (1, 1));
    proxy.fail_next_with("EVALSHA\r\n", Fault::CutAfterApply);
    world.put("payments", "cut").await;
    assert_eq!((round(&relay).await.failed, proxy.met(), ready().await), (1, 1, 2));
    // Each hour both, since the queue cannot say whether they wait or are lost.
    for _ in 0..2 {
        world.later();
        assert_eq!((round(&relay).await.sent, ready().await), (2, 2));
    }
    let cut = world.stub("cut").await;
    assert_eq!((cut.sends, cut.place), (3, None));

    world.put("payments", "lost").await;
    assert_eq!((round(&relay).await.sent, ready().await), (1, 3));
    server.command(&["FLUSHALL"]);
    world.later();
    assert_eq!((round(&relay).await.sent, ready().await), (3, 3));

    let executor = Executor::new(MemoryStore::new());
    let all = ["cut", "lost", "usual"];
    assert_eq!(world.consume(DelaySource::new(&direct), &executor, &all).await, once(&all));
    world.later();
    assert_eq!(round(&relay).await.looked_at, 0, "confirmed");
}

/// The queue's copy is done, and its id is free; only the outbox does not know.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_of_a_completed_message_is_confirmed_without_a_second_effect() {
    let server = RedisServer::start();
    let (world, elsewhere) = (World::new().await, World::new().await);
    let queue = queue(&server.url()).await;
    let producer = DelayProducer::new(&queue).after(Duration::from_millis(50));
    let (relay, executor) = (world.relay(producer.clone()), Executor::new(MemoryStore::new()));
    world.put("payments", "m").await;
    // Whose database is another one: what it confirms is not ours.
    elsewhere.put("payments", "m").await;
    assert_eq!(round(&elsewhere.relay(producer)).await.sent, 1);
    assert_eq!(elsewhere.consume(DelaySource::new(&queue), &executor, &["m"]).await, once(&["m"]));
    assert_eq!(round(&relay).await.sent, 1);
    assert!(world.consume(DelaySource::new(&queue), &executor, &["m"]).await.is_empty(), "a duplicate does not run");
}
