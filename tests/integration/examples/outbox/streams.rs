//! The outbox with a stream, whose positions are comparable.
use idempotent::redis_streams::{StartPosition, StreamsPublisher, StreamsSource};
use idempotent::{Executor, MemoryStore};
use idempotent_harness::proxy::{Fault, Proxy};
use idempotent_harness::servers::{RedisServer, Value};

use crate::outbox::world::{World, once, round};

async fn source(server: &RedisServer) -> StreamsSource {
    let source = StreamsSource::builder(server.url(), "payments", "billing").declare(StartPosition::Beginning);
    source.id_field("id").connect().await.unwrap()
}

fn length(server: &RedisServer) -> i64 {
    let Value::Integer(length) = server.command(&["XLEN", "payments"]) else { panic!("no stream") };
    length
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_between_a_sending_and_its_answer_the_server_gets_it_again_and_the_effect_is_had_once() {
    let server = RedisServer::builder().aof().arg("--appendfsync").arg("always").start();
    let proxy = Proxy::start(&server.address()).await;
    let world = World::new().await;
    let relay = world.relay(StreamsPublisher::new(proxy.url()).unwrap());
    world.put("payments", "first").await;
    assert_eq!(round(&relay).await.sent, 1);
    let first = world.stub("first").await;
    assert!(
        first.sent_at.is_some() && first.place.is_some() && first.queue.as_deref() == Some("payments"),
        "{first:?}"
    );

    proxy.fail_next_with("XADD\r\n", Fault::HalfOpenAfterApply);
    world.put("payments", "killed").await;
    assert_eq!(round(&relay).await.failed, 1);
    server.kill();
    world.later();
    assert_eq!((round(&relay).await.failed, proxy.met()), (1, 1));
    let killed = world.stub("killed").await;
    assert_eq!(
        (killed.sends, killed.failures, killed.sent_at),
        (1, 2, None),
        "without a server nothing is used up: {killed:?}"
    );
    server.restart();
    world.later();
    assert!(round(&relay).await.sent >= 1);
    assert_eq!((world.stub("killed").await.sends, length(&server)), (2, 3), "it lies there twice, under one id");

    let executor = Executor::new(MemoryStore::new());
    assert_eq!(world.consume(source(&server).await, &executor, &["first", "killed"]).await, once(&["first", "killed"]));
    world.later();
    assert_eq!(round(&relay).await.looked_at, 0, "confirmed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_that_the_server_lost_is_sent_again_after_consumers_have_passed_its_position() {
    let server = RedisServer::start();
    let world = World::new().await;
    let relay = world.relay(StreamsPublisher::new(server.url()).unwrap());
    let executor = Executor::new(MemoryStore::new());
    world.put("payments", "lost").await;
    assert_eq!(round(&relay).await.sent, 1);
    // It wrote nothing down.
    server.kill();
    server.restart();
    world.later();
    let round_now = round(&relay).await;
    assert_eq!((round_now.looked_at, round_now.sent), (1, 0), "for all that is known it waits in its queue");
    world.put("payments", "next").await;
    assert_eq!(round(&relay).await.sent, 1);
    assert_eq!(length(&server), 1);
    assert_eq!(world.consume(source(&server).await, &executor, &["next"]).await, once(&["next"]));
    assert!(world.stub("next").await.place > world.stub("lost").await.place);
    world.later();
    assert_eq!(round(&relay).await.sent, 1);
    assert_eq!(world.consume(source(&server).await, &executor, &["lost"]).await, once(&["lost"]));
}
