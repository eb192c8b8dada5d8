//! Messages that consumers hold: who may settle them, and how they are counted.
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::atomic::Ordering::SeqCst;
use std::time::Instant;

use idempotent_core::Timestamp;
use idempotent_mq::{DeadLetter, DelaySupport, Settlement, Source, SourceErrorKind};

use crate::world::{LIMIT, World, builder_of, client, counting, ms, one, retry, settle, until};

/// The environment variable with the address and the queue, in a process that receives a message and holds it.
const HOLDER: &str = "IDEMPOTENT_SQS_HOLDER";

fn letter() -> Settlement {
    Settlement::DeadLetter(DeadLetter::because("no stock", Timestamp(9)))
}

#[tokio::test]
async fn a_settled_message_refuses_every_other_settlement() {
    let world = World::new().await;
    let mut source = world.source().await;
    let settler = source.settler();
    world.send("1").await;
    let held = one(&mut source).await;
    settle(&settler, &held, Settlement::Ack).await;
    for how in [retry(ms(1)), letter(), Settlement::GiveBack] {
        let error = settler.settle(&held.0, &held.1, &how).await.unwrap_err();
        assert_eq!(error.kind(), SourceErrorKind::Gone, "{}: {error}", how.name());
    }
    settler.keep_alive(&[&held.1]).await.unwrap();
    assert_eq!((world.open().await, world.numbers(&world.dead()).await), (0, (0, 0)));
}

#[tokio::test]
async fn a_keep_alive_does_not_undo_a_settlement() {
    let world = World::new().await;
    let mut source = world.builder().visibility_timeout(LIMIT * 2).connect().await.unwrap();
    let settler = source.settler();
    world.send("1").await;
    let held = one(&mut source).await;
    settle(&settler, &held, Settlement::GiveBack).await;
    settler.keep_alive(&[&held.1]).await.unwrap();
    // Hidden for less than the limit of this call.
    let held = one(&mut source).await;
    assert_eq!((held.0.delivered, held.0.attempt, held.0.redelivered), (Some(1), Some(1), true), "no crash");
    settle(&settler, &held, Settlement::Ack).await;
}

#[tokio::test]
async fn more_messages_than_fit_into_one_request_are_kept_alive_and_acknowledged() {
    let world = World::new().await;
    let mut source = world.builder().visibility_timeout(ms(6_000)).connect().await.unwrap();
    let settler = source.settler();
    for number in 0..23 {
        world.send(&number.to_string()).await;
    }
    let mut held = Vec::new();
    while held.len() < 23 {
        held.extend(crate::world::receive(&mut source, 23).await);
        let tags: Vec<_> = held.iter().map(|(_, tag)| tag).collect();
        settler.keep_alive(&tags).await.unwrap();
    }
    let tags: Vec<_> = held.iter().map(|(_, tag)| tag).collect();
    let start = Instant::now();
    while start.elapsed() < ms(8_000) {
        settler.keep_alive(&tags).await.unwrap();
        assert_eq!(world.numbers(&world.name).await, (0, 23), "a message is delivered again");
    }
    let acks = held.iter().map(|held| settle(&settler, held, Settlement::Ack));
    futures_util::future::join_all(acks).await;
    assert_eq!(world.open().await, 0);
}

#[tokio::test]
async fn a_retry_is_known_in_its_process_and_a_receive_in_another_process_counts() {
    let world = World::new().await;
    let (mut source, mut other) = (world.source().await, world.source().await);
    let (settler, others) = (source.settler(), other.settler());
    world.send("1").await;
    let held = one(&mut source).await;
    assert_eq!((held.0.attempt, held.0.delivered, held.0.redelivered), (Some(1), Some(1), false));
    let first_at = held.0.first_at;
    assert!(first_at.is_some(), "the time of SQS");
    settle(&settler, &held, retry(ms(1))).await;
    let held = one(&mut other).await;
    assert_eq!((held.0.attempt, held.0.delivered, held.0.redelivered), (Some(1), Some(2), true));
    assert_eq!(held.0.first_at, first_at);
    settle(&others, &held, Settlement::GiveBack).await;
    let held = one(&mut source).await;
    assert_eq!((held.0.attempt, held.0.delivered, held.0.first_at), (Some(2), Some(2), Some(Timestamp(1))));
    settle(&settler, &held, Settlement::Ack).await;
    assert_eq!(source.capabilities().delays, DelaySupport::UpTo(ms(11 * 3_600_000)));
}

#[tokio::test]
async fn two_consumers_share_the_messages_and_each_runs_once() {
    let world = World::new().await;
    // Longer than a handler on a loaded machine. A message whose receive or deletion was lost is delivered again.
    let builder = || world.builder().visibility_timeout(LIMIT / 6);
    let sources = [builder().connect().await.unwrap(), builder().connect().await.unwrap()];
    for number in 0..60 {
        world.send(&number.to_string()).await;
    }
    let (handling, runs) = counting();
    let [first, second] = sources.map(|source| world.run(source, handling.clone()));
    until("the queue is empty", async || world.open().await == 0).await;
    let (first, second) = (first.ended().await.unwrap(), second.ended().await.unwrap());
    assert_eq!(runs.load(SeqCst), 60, "{first:?} {second:?}");
}

/// Not a test: a process that holds a message, and keeps the message alive until the process is killed.
#[tokio::test]
async fn holder_process() {
    let Ok(place) = std::env::var(HOLDER) else { return };
    let (address, queue) = place.split_once(' ').unwrap();
    let mut source = builder_of(client(address), queue).connect().await.unwrap();
    let (settler, held) = (source.settler(), one(&mut source).await);
    println!("\nholding");
    loop {
        let _ = settler.keep_alive(&[&held.1]).await;
        tokio::time::sleep(ms(300)).await;
    }
}

#[tokio::test]
async fn the_message_of_a_killed_process_is_taken_over() {
    let world = World::new().await;
    world.send("17").await;
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "holds::holder_process", "--nocapture"]);
    command.env(HOLDER, format!("{} {}", world.address, world.name)).stdout(Stdio::piped());
    let mut process = command.spawn().unwrap();
    let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
    let is_holding = tokio::task::spawn_blocking(move || lines.any(|line| line.unwrap() == "holding")).await.unwrap();
    assert!(is_holding, "the process has received the message");
    process.kill().unwrap();
    process.wait().unwrap();
    let mut source = world.source().await;
    let held = one(&mut source).await;
    assert_eq!((&*held.0.body, held.0.attempt, held.0.delivered), (&b"17"[..], Some(1), Some(2)));
    settle(&source.settler(), &held, Settlement::Ack).await;
    assert_eq!(world.open().await, 0);
}
