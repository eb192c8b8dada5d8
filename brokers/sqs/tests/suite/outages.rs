//! A stopped server, a deleted queue, polls at the end of a source, and a long handler.
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

use idempotent_harness::proxy::{Fault, Proxy};
use idempotent_harness::servers::MotoServer;
use idempotent_mq::{Settlement, Source, SourceErrorKind};

use crate::world::{LIMIT, World, builder_of, client, counting, gated, ms, one, settle, until};

#[tokio::test]
async fn a_settlement_without_an_answer_is_temporary_and_succeeds_later() {
    let server = tokio::task::spawn_blocking(MotoServer::start).await.unwrap();
    let client = client(&server.address());
    let builder = builder_of(client.clone(), "orders").declare().visibility_timeout(LIMIT * 2);
    let mut source = builder.connect().await.unwrap();
    let url = client.get_queue_url().queue_name("orders").send().await.unwrap().queue_url.unwrap();
    client.send_message().queue_url(url).message_body("1").send().await.unwrap();
    let held = one(&mut source).await;
    let settler = source.settler();
    server.pause();
    let error = settler.settle(&held.0, &held.1, &Settlement::Ack).await.unwrap_err();
    assert!(
        error.kind() == SourceErrorKind::Transient && error.to_string().contains("no answer within 5 s"),
        "{error}"
    );
    server.resume();
    settle(&settler, &held, Settlement::Ack).await;
}

#[tokio::test]
async fn a_consumer_ends_with_the_reason_after_its_queue_was_deleted() {
    let world = World::new().await;
    let (handling, runs) = counting();
    let running = world.run(world.source().await, handling);
    world.send("1").await;
    until("the message ran", async || runs.load(SeqCst) == 1).await;
    world.client.delete_queue().queue_url(world.url(&world.name).await).send().await.unwrap();
    let error = running.ended_by_itself().await.unwrap_err();
    assert!(error.kind() == SourceErrorKind::Fatal && error.to_string().contains("create the queue"), "{error}");
}

#[tokio::test]
async fn a_poll_that_receives_a_message_after_the_drain_returns_it() {
    let world = World::new().await;
    let between = Proxy::start(&world.address).await;
    let builder = builder_of(client(&between.address()), &world.name).visibility_timeout(LIMIT * 2);
    let mut source = builder.connect().await.unwrap();
    between.fail_next_with("AmazonSQS.ReceiveMessage", Fault::Delay(Duration::ZERO));
    // The proxy has the request of the poll when the receive is dropped.
    tokio::select! {
        biased;
        _ = source.receive(4) => panic!("there is no message"),
        met = tokio::time::timeout(LIMIT, between.until_met(1)) => met.unwrap(),
    }
    source.close().await;
    drop(source);
    world.send("1").await;
    let held = one(&mut world.source().await).await;
    assert_eq!(held.0.attempt, Some(1));
}

#[tokio::test]
async fn messages_that_arrived_and_were_not_taken_are_returned_by_a_close() {
    let world = World::new().await;
    let mut source = world.builder().visibility_timeout(LIMIT * 2).connect().await.unwrap();
    for number in 0..3 {
        world.send(&number.to_string()).await;
    }
    // The poll continues when the receive is dropped.
    tokio::select! {
        biased;
        _ = source.receive(3) => panic!("no answer arrives at once"),
        () = std::future::ready(()) => {}
    }
    until("the messages arrived", async || world.numbers(&world.name).await == (0, 3)).await;
    let held = one(&mut source).await;
    source.close().await;
    assert_eq!(world.numbers(&world.name).await, (2, 1));
    settle(&source.settler(), &held, Settlement::Ack).await;
}

#[tokio::test]
async fn a_long_handler_keeps_its_message() {
    // A machine that stops for most of the visibility timeout proves nothing, so the handler then runs again, with a longer timeout.
    for visibility in [5_000, 10_000, 20_000] {
        if keeps_its_message(ms(visibility)).await {
            return;
        }
    }
    panic!("three times, an extension came after more than two thirds of the visibility timeout");
}

/// Runs a handler for more than two visibility timeouts, and checks that its message is delivered once. Returns false if an extension
/// was late.
async fn keeps_its_message(visibility: Duration) -> bool {
    // One in each third of the timeout.
    const EXTENSIONS: u64 = 7;
    let world = World::new().await;
    let between = Proxy::start(&world.address).await;
    let (handling, begun, gate) = gated();
    let source = builder_of(client(&between.address()), &world.name).visibility_timeout(visibility);
    let running = world.run(source.connect().await.unwrap(), handling);
    for _ in 0..EXTENSIONS {
        between.fail_next_with("AmazonSQS.ChangeMessageVisibilityBatch", Fault::Delay(Duration::ZERO));
    }
    world.send("1").await;
    until("the handler runs", async || begun.load(SeqCst) == 1).await;
    let (mut longest, mut last) = (Duration::ZERO, Instant::now());
    for number in 1..=EXTENSIONS {
        tokio::time::timeout(LIMIT, between.until_met(number)).await.unwrap();
        longest = longest.max(last.elapsed());
        last = Instant::now();
    }
    let numbers = world.numbers(&world.name).await;
    gate.add_permits(1);
    until("the message is acknowledged", async || world.open().await == 0).await;
    let counts = running.ended().await.unwrap();
    let is_in_time = longest < visibility * 2 / 3;
    assert!(!is_in_time || (numbers, counts.received, begun.load(SeqCst)) == ((0, 1), 1, 1), "{numbers:?} {counts:?}");
    is_in_time
}
