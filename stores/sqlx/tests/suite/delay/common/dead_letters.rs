//! Dead letters.
use idempotent_core::Timestamp;
use idempotent_mq::{Cancelled, DeadLetter, DeadLetters, Delay, Redrive, Scheduled, Settlement, StoredLetter};
use idempotent_sqlx::DelayTableDeadLetters;

use super::world::{Hand, SECOND, World, id};
use crate::delay::clock::Moved;

async fn bury(world: &World, hand: &mut Hand, key: &str, died: u64) {
    world.work.schedule(key, Timestamp(0), b"").await.unwrap();
    let held = hand.take(1).await.remove(0);
    hand.settle(&held, Settlement::DeadLetter(DeadLetter::because("no such order", Timestamp(died)))).await;
}

#[tokio::test]
async fn dead_letters_are_listed_oldest_first_put_back_and_removed() {
    let world = World::new().await;
    let mut hand = Hand::of(&world);
    for (key, died) in [("b", 20), ("a", 10), ("c", 20)] {
        bury(&world, &mut hand, key, died).await;
    }
    let mut letters = DelayTableDeadLetters::new(&world.work);
    assert_eq!(letters.count().await.unwrap(), 3);
    assert!(letters.put_back().await.is_err(), "nothing was brought");
    let mut listed = Vec::new();
    while let Some(StoredLetter { delivery, letter, .. }) = letters.next().await.unwrap() {
        assert_eq!(letter.unwrap().reason, "no such order");
        listed.push(delivery.id.unwrap());
    }
    assert_eq!(listed, ["a", "b", "c"]);
    let redriven = Redrive::new().limit(1).run(&mut DelayTableDeadLetters::new(&world.work)).await;
    assert_eq!((redriven.put_back, redriven.failed.is_none()), (1, true));
    let back = hand.take(9).await;
    assert_eq!((id(&back[0]), back[0].0.deaths, back[0].0.attempt), ("a", 1, Some(1)));
    assert_eq!(world.work.purge_dead(1).await.unwrap(), 1);
    let StoredLetter { delivery: left, .. } = DelayTableDeadLetters::new(&world.work).next().await.unwrap().unwrap();
    assert_eq!(left.id.as_deref(), Some("c"), "the older one was removed");
    assert_eq!(world.work.purge_dead(9).await.unwrap(), 1);
    assert_eq!(world.counts().await.dead, 0);
}

#[tokio::test]
async fn a_dead_letter_is_removed_only_in_the_death_that_was_read() {
    let world = World::new().await;
    let mut hand = Hand::of(&world);
    for (key, died) in [("a", 10), ("b", 20)] {
        bury(&world, &mut hand, key, died).await;
    }
    let mut letters = DelayTableDeadLetters::new(&world.work);
    assert!(letters.discard().await.is_err(), "nothing was read");
    letters.next().await.unwrap().unwrap();
    // The message is put back, and dies again.
    assert_eq!(Redrive::new().limit(1).run(&mut DelayTableDeadLetters::new(&world.work)).await.put_back, 1);
    let held = hand.take(1).await.remove(0);
    hand.settle(&held, Settlement::DeadLetter(DeadLetter::because("no such order", Timestamp(30)))).await;
    assert!(!letters.discard().await.unwrap(), "the letter of the earlier death is gone");
    assert!(letters.discard().await.is_err(), "the answer was given already");
    assert_eq!(letters.next().await.unwrap().unwrap().delivery.id.as_deref(), Some("b"));
    assert!(letters.discard().await.unwrap());
    let StoredLetter { delivery: left, .. } = DelayTableDeadLetters::new(&world.work).next().await.unwrap().unwrap();
    assert_eq!((left.id.as_deref(), world.counts().await.dead), (Some("a"), 1));
}

#[tokio::test]
async fn a_dead_letter_frees_its_key_and_is_redriven_next_to_the_newer_message() {
    let world = World::new().await;
    let mut hand = Hand::of(&world);
    bury(&world, &mut hand, "k", 10).await;
    assert_eq!(world.work.cancel("k").await.unwrap(), Cancelled::Unknown, "a dead letter is not called off");
    assert_eq!(world.work.schedule("k", Moved::at(SECOND), b"next").await.unwrap(), Scheduled::New);
    let redriven = Redrive::new().run(&mut DelayTableDeadLetters::new(&world.work)).await;
    assert!(redriven.failed.is_none(), "{redriven:?}");
    let back = hand.take(9).await;
    assert_eq!((back.len(), id(&back[0]), back[0].0.deaths), (1, "k", 1));
    hand.settle(&back[0], Settlement::Ack).await;
    world.clock.advance(SECOND);
    let next = hand.take(9).await;
    assert_eq!((next.len(), &*next[0].0.body), (1, &b"next"[..]));
}

#[tokio::test]
async fn an_unreadable_message_is_dead_lettered_before_delivery() {
    let world = World::new().await;
    world.work.schedule("bad", Timestamp(0), b"kept").await.unwrap();
    world.work.schedule("good", Timestamp(1), b"").await.unwrap();
    let bad = super::backend::HEX.replace("DIGITS", "626164");
    let garbage = super::backend::HEX.replace("DIGITS", "ffffffff00");
    world.sql(&format!("UPDATE delay SET headers={garbage} WHERE id={bad}")).await;
    let mut hand = Hand::of(&world);
    assert_eq!(hand.take(9).await.iter().map(id).collect::<Vec<_>>(), ["good"]);
    let StoredLetter { delivery, letter, .. } = DelayTableDeadLetters::new(&world.work).next().await.unwrap().unwrap();
    assert_eq!((delivery.id.as_deref(), &*delivery.body), (Some("bad"), &b"kept"[..]));
    assert!(letter.unwrap().reason.contains("cannot be read"));
}
