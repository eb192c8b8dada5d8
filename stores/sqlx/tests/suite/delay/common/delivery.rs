//! Due messages and their visibility timeouts.
use std::collections::HashSet;
use std::time::Duration;

use idempotent_core::Timestamp;
use idempotent_mq::{DeadLetters, Delay, Retry, Settlement, Source, SourceErrorKind, StoredLetter};
use idempotent_sqlx::{DelayTableDeadLetters, ScheduledTask};

use super::world::{Hand, MICRO, SECOND, VISIBILITY, World, id};
use crate::delay::clock::Moved;

const HALF_AN_HOUR: Duration = Duration::from_secs(30 * 60);

#[tokio::test]
async fn nothing_comes_a_microsecond_before_its_time_and_then_it_does() {
    let world = World::new().await;
    world.work.put(&ScheduledTask::after("order-17", HALF_AN_HOUR, "17")).await.unwrap();
    let mut hand = Hand::of(&world);
    hand.nothing().await;
    world.clock.advance(HALF_AN_HOUR - MICRO);
    hand.nothing().await;
    world.clock.advance(MICRO);
    let taken = hand.take(9).await;
    assert_eq!((taken.len(), id(&taken[0]), &*taken[0].0.body), (1, "order-17", &b"17"[..]));
}

#[tokio::test]
async fn messages_that_fell_due_without_a_consumer_are_delivered_at_the_start_longest_due_first() {
    let world = World::new().await;
    for (key, after) in [("c", 30), ("a", 10), ("b", 20), ("d", 99_999)] {
        world.work.put(&ScheduledTask::after(key, after * SECOND, "")).await.unwrap();
    }
    world.clock.advance(HALF_AN_HOUR);
    let mut hand = Hand::of(&world);
    let mut came = hand.take(2).await;
    came.extend(hand.take(2).await);
    assert_eq!(came.iter().map(id).collect::<Vec<_>>(), ["a", "b", "c"]);
    hand.nothing().await;
}

#[tokio::test]
async fn the_messages_of_a_killed_consumer_are_redelivered_after_the_visibility_timeout() {
    let world = World::new().await;
    world.work.schedule("k", Moved::at(SECOND), b"").await.unwrap();
    world.clock.advance(SECOND);
    let mut first = Hand::of(&world);
    let held = first.take(9).await.remove(0);
    assert_eq!((held.0.delivered, held.0.redelivered), (Some(1), false));
    let mut other = Hand::of(&world);
    world.clock.advance(VISIBILITY - MICRO);
    other.nothing().await;
    world.clock.advance(MICRO);
    let again = other.take(9).await.remove(0);
    assert_eq!((id(&again), again.0.delivered, again.0.redelivered), ("k", Some(2), true));
    assert_eq!((again.0.attempt, again.0.first_at), (Some(1), Some(Moved::at(SECOND))));
    // Who has lost it can do nothing to it any more.
    for how in [Settlement::Ack, Settlement::GiveBack, Settlement::Retry(Retry::after(SECOND, Timestamp(1)))] {
        let gone = first.settler.settle(&held.0, &held.1, &how).await.unwrap_err();
        assert_eq!(gone.kind(), SourceErrorKind::Gone, "{}", how.name());
    }
    world.clock.advance(VISIBILITY / 2);
    first.settler.keep_alive(&[&held.1]).await.unwrap();
    world.clock.advance(VISIBILITY / 2);
    let third = Hand::of(&world).take(9).await.remove(0);
    assert_eq!(third.0.delivered, Some(3), "who has lost it does not keep it alive for others");
    first.settle(&third, Settlement::Ack).await;
    assert_eq!(world.counts().await, Default::default());
}

#[tokio::test]
async fn an_extended_message_is_not_redelivered() {
    let world = World::new().await;
    world.work.schedule("k", Moved::at(SECOND), b"").await.unwrap();
    world.clock.advance(SECOND);
    let (mut hand, mut other) = (Hand::of(&world), Hand::of(&world));
    let held = hand.take(9).await.remove(0);
    for _ in 0..3 {
        world.clock.advance(VISIBILITY - MICRO);
        other.nothing().await;
        hand.settler.keep_alive(&[&held.1]).await.unwrap();
    }
    hand.settle(&held, Settlement::Ack).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_takers_never_have_the_same() {
    const ROWS: usize = 200;
    let world = World::real(|builder| builder).await;
    for row in 0..ROWS {
        world.work.put(&ScheduledTask::at(format!("k{row}"), Timestamp(0), "")).await.unwrap();
    }
    let (told, mut taken) = tokio::sync::mpsc::unbounded_channel();
    let takers: Vec<_> = (0..4)
        .map(|_| {
            let (mut source, told) = (world.work.source(), told.clone());
            tokio::spawn(async move {
                let settler = source.settler();
                loop {
                    // A row that two have is one that two cannot acknowledge.
                    let Ok(idempotent_mq::Received::Deliveries(held)) = source.receive(7).await else { continue };
                    for (delivery, tag) in held {
                        let settled = settler.settle(&delivery, &tag, &Settlement::Ack).await;
                        told.send((delivery.id.unwrap(), delivery.delivered, settled.is_ok())).unwrap();
                    }
                }
            })
        })
        .collect();
    let mut ids = HashSet::new();
    for _ in 0..ROWS {
        let (id, delivered, settled) = taken.recv().await.unwrap();
        assert!(ids.insert(id), "two had it");
        assert_eq!((delivered, settled), (Some(1), true));
    }
    takers.iter().for_each(|taker| taker.abort());
    assert_eq!(world.counts().await, Default::default());
}

#[tokio::test]
async fn a_message_that_kills_its_consumers_is_dead_lettered_at_the_limit() {
    let world = World::with(|builder| builder.max_lost(1)).await;
    world.work.schedule("k", Moved::at(SECOND), b"payload").await.unwrap();
    world.work.schedule("sane", Moved::at(300 * SECOND), b"").await.unwrap();
    world.clock.advance(SECOND);
    for delivered in 1..=2 {
        let held = Hand::of(&world).take(9).await.remove(0);
        assert_eq!(held.0.delivered, Some(delivered));
        world.clock.advance(VISIBILITY);
    }
    let mut hand = Hand::of(&world);
    let is_dead = async { while world.counts().await.dead == 0 {} };
    tokio::select! {
        taken = hand.source.receive(10) => panic!("something came: {taken:?}"),
        () = is_dead => {}
    }
    let counts = world.counts().await;
    assert_eq!((counts.dead, counts.waiting, counts.ready, counts.in_flight), (1, 1, 0, 0));
    let mut letters = DelayTableDeadLetters::new(&world.work);
    let StoredLetter { delivery, letter, .. } = letters.next().await.unwrap().unwrap();
    assert_eq!((delivery.id.as_deref(), &*delivery.body), (Some("k"), &b"payload"[..]));
    let letter = letter.unwrap();
    assert!(letter.reason.contains("settled by nobody"), "{letter:?}");
    assert_eq!((letter.attempts, letter.deaths), (2, 1));
    assert_eq!((letter.first_at, letter.last_at), (Moved::at(SECOND), Moved::at(121 * SECOND)));
    world.clock.advance(300 * SECOND);
    assert_eq!(id(&hand.take(9).await[0]), "sane", "others are not held up");
}

#[tokio::test]
async fn deliveries_that_are_settled_do_not_count_as_lost() {
    let world = World::with(|builder| builder.max_lost(0)).await;
    world.work.schedule("k", Moved::at(SECOND), b"").await.unwrap();
    world.clock.advance(SECOND);
    let mut hand = Hand::of(&world);
    for how in [Settlement::GiveBack, Settlement::Retry(Retry::after(SECOND, Timestamp(1))), Settlement::GiveBack] {
        let held = hand.take(9).await.remove(0);
        hand.settle(&held, how).await;
        world.clock.advance(SECOND);
    }
    let held = hand.take(9).await.remove(0);
    hand.settle(&held, Settlement::Ack).await;
}

#[tokio::test]
async fn a_cancellation_in_an_open_transaction_delays_no_consumer() {
    let world = World::real(|builder| builder.poll(Duration::from_millis(20))).await;
    for key in ["a", "b"] {
        world.work.put(&ScheduledTask::at(key, Timestamp(0), "")).await.unwrap();
    }
    let Some(mut paying) = super::backend::other_transaction(&world.pool).await else {
        // SQLite has one writer at a time, so other consumers wait or report a busy database.
        return;
    };
    world.work.cancel_in(&mut paying, "a").await.unwrap();
    let mut hand = Hand::of(&world);
    // There is only room for the message that the transaction has locked.
    let held = hand.take(1).await;
    assert_eq!(held.iter().map(id).collect::<Vec<_>>(), ["b"]);
    hand.settle(&held[0], Settlement::Ack).await;
    hand.nothing().await;
    paying.rollback().await.unwrap();
    assert_eq!(id(&hand.take(9).await[0]), "a", "it was not paid after all");
}
