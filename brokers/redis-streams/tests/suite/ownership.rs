//! Ownership of entries.
use std::time::Instant;

use idempotent_core::Timestamp;
use idempotent_mq::{DeadLetter, Settlement, Source, SourceErrorKind};

use crate::world::{World, ms, nothing_until, one, retry, settle, until};

#[tokio::test]
async fn entries_of_a_silent_consumer_are_taken_over_after_min_idle_and_not_before() {
    let world = World::new();
    let (mut first, mut second) = (world.source("a").await, world.source("b").await);
    world.send("1");
    let before = Instant::now();
    drop(one(&mut first).await);
    let taken = one(&mut second).await;
    assert!(before.elapsed() >= ms(600), "{:?}", before.elapsed());
    assert_eq!((taken.0.delivered, world.pending()), (Some(2), vec![("b".to_owned(), 2)]));
}

#[tokio::test]
async fn keeping_alive_never_takes_back_an_entry_from_another_consumer() {
    let world = World::new();
    let (mut first, mut second) = (world.source("a").await, world.source("b").await);
    world.send("1");
    let held = one(&mut first).await;
    let taken = one(&mut second).await;
    first.settler().keep_alive(&[&held.1]).await.unwrap();
    assert_eq!(world.pending(), [("b".to_owned(), 2)]);
    settle(&second.settler(), &taken, Settlement::Ack).await;
    first.settler().keep_alive(&[&held.1]).await.unwrap();
    assert!(world.pending().is_empty());
}

#[tokio::test]
async fn keeping_alive_does_not_undo_a_delay() {
    let world = World::new();
    // Searches every 5 s, and when an entry is due.
    let mut source = world.builder("a").min_idle(ms(60_000)).connect().await.unwrap();
    world.send("1");
    let held = one(&mut source).await;
    settle(&source.settler(), &held, retry(ms(200))).await;
    source.settler().keep_alive(&[&held.1]).await.unwrap();
    let since = Instant::now();
    one(&mut source).await;
    assert!(since.elapsed() < ms(3_000), "{:?}", since.elapsed());
}

#[tokio::test]
async fn an_entry_taken_over_by_another_consumer_is_gone_but_can_be_acknowledged() {
    let world = World::new();
    let (mut first, mut second) = (world.source("a").await, world.source("b").await);
    world.send("1");
    let held = one(&mut first).await;
    one(&mut second).await;
    let letter = Settlement::DeadLetter(DeadLetter::because("no", Timestamp(1)));
    for settlement in [retry(ms(100)), Settlement::GiveBack, letter] {
        let refused = first.settler().settle(&held.0, &held.1, &settlement).await.unwrap_err();
        assert_eq!(refused.kind(), SourceErrorKind::Gone, "{refused}");
    }
    assert_eq!((world.pending(), world.entries("orders:dead").len()), (vec![("b".to_owned(), 2)], 0));
    settle(&first.settler(), &held, Settlement::Ack).await;
    assert!(world.pending().is_empty());
}

#[tokio::test]
async fn a_held_entry_is_not_delivered_twice_after_a_late_keep_alive() {
    let world = World::new();
    let mut source = world.source("a").await;
    world.send("1");
    let held = one(&mut source).await;
    let end = Instant::now() + ms(2_000);
    nothing_until(&mut source, || Instant::now() >= end).await;
    // An entry that is no longer held and was not settled is redelivered.
    drop(held);
    one(&mut source).await;
}

#[tokio::test]
async fn the_idle_time_of_an_entry_starts_when_it_is_read() {
    let world = World::new();
    let slow = async |name| world.builder(name).min_idle(ms(3_000)).connect().await.unwrap();
    let (mut first, mut second) = (slow("a").await, slow("b").await);
    world.send("1");
    let sent = Instant::now();
    // Longer than the idle time of a held entry.
    until("it is old", async || sent.elapsed() > ms(3_100)).await;
    let held = one(&mut first).await;
    let looks = world.calls("xautoclaim");
    nothing_until(&mut second, || world.calls("xautoclaim") > looks + 2).await;
    assert_eq!(world.pending(), [("a".to_owned(), 1)]);
    settle(&first.settler(), &held, Settlement::Ack).await;
}
