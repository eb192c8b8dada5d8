//! Scheduling, and calling off.
use std::time::Duration;

use idempotent_core::Timestamp;
use idempotent_mq::{Cancelled, Delay, DelayErrorKind, Retry, Scheduled, Settlement, SourceErrorKind};
use idempotent_sqlx::ScheduledTask;

use super::backend;
use super::world::{Hand, SECOND, World, id};
use crate::delay::clock::Moved;

#[tokio::test]
async fn an_order_and_its_time_limit_are_one_commit_or_none() {
    let world = World::new().await;
    let at = Moved::at(SECOND);
    let mut tx = world.begin().await;
    assert_eq!(world.work.schedule_in(&mut tx, "order-1", at, b"1").await.unwrap(), Scheduled::New);
    tx.rollback().await.unwrap();
    assert_eq!(world.counts().await.waiting, 0, "the order is not there, nor is its limit");
    let mut tx = world.begin().await;
    world.work.schedule_in(&mut tx, "order-1", at, b"1").await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(world.counts().await.waiting, 1);
    // The payment that is rolled back leaves the limit; the one that commits takes it away.
    let mut tx = world.begin().await;
    assert_eq!(world.work.cancel_in(&mut tx, "order-1").await.unwrap(), Cancelled::Done);
    tx.rollback().await.unwrap();
    assert_eq!(world.counts().await.waiting, 1);
    let mut tx = world.begin().await;
    world.work.cancel_in(&mut tx, "order-1").await.unwrap();
    tx.commit().await.unwrap();
    world.clock.advance(9 * SECOND);
    assert_eq!(world.counts().await, Default::default());
}

/// A handler that selects the schema or the database of its tenant.
#[tokio::test]
async fn a_task_is_in_the_table_that_was_opened_wherever_its_transaction_looks_for_tables() {
    let world = World::new().await;
    let mut tx = world.begin().await;
    sqlx::raw_sql(backend::ELSEWHERE).execute(&mut *tx).await.unwrap();
    assert_eq!(world.work.schedule_in(&mut tx, "k", Moved::at(SECOND), b"1").await.unwrap(), Scheduled::New);
    tx.commit().await.unwrap();
    assert_eq!(world.counts().await.waiting, 1);
}

#[tokio::test]
async fn a_key_is_stored_once_until_it_is_settled_and_the_first_message_is_kept() {
    let world = World::new().await;
    let (first, other) = (Moved::at(SECOND), Moved::at(3 * SECOND));
    assert_eq!(world.work.schedule("k", first, b"first").await.unwrap(), Scheduled::New);
    assert_eq!(world.work.schedule("k", other, b"other").await.unwrap(), Scheduled::Already { at: first });
    let mut tx = world.begin().await;
    let again = world.work.schedule_in(&mut tx, "k", other, b"other").await.unwrap();
    assert_eq!(again, Scheduled::Already { at: first });
    tx.commit().await.unwrap();
    world.clock.advance(SECOND);
    let mut hand = Hand::of(&world);
    let held = hand.take(9).await;
    assert_eq!((held.len(), id(&held[0]), &*held[0].0.body), (1, "k", &b"first"[..]));
    let while_held = world.work.schedule("k", other, b"other").await.unwrap();
    assert_eq!(while_held, Scheduled::Already { at: first });
    hand.settle(&held[0], Settlement::Ack).await;
    assert_eq!(world.work.schedule("k", other, b"other").await.unwrap(), Scheduled::New, "it is done with");
}

#[tokio::test]
async fn one_of_two_concurrent_schedulers_of_a_key_stores_its_message() {
    let world = World::real(|builder| builder).await;
    for round in 0..20 {
        let key = format!("k{round}");
        let one = |at| {
            let (work, key) = (world.work.clone(), key.clone());
            async move {
                let mut tries = 0;
                loop {
                    match work.schedule(&key, Timestamp(at), b"").await {
                        Ok(scheduled) => return scheduled,
                        Err(error) if error.kind() != DelayErrorKind::Refused && tries < 5 => tries += 1,
                        Err(error) => panic!("{error}"),
                    }
                }
            }
        };
        let far = Moved::START * 2;
        let (one, other) = tokio::join!(tokio::spawn(one(far)), tokio::spawn(one(far + 1)));
        let all = [one.unwrap(), other.unwrap()];
        let new = all.iter().filter(|scheduled| **scheduled == Scheduled::New).count();
        let told = all.iter().filter(|scheduled| matches!(scheduled, Scheduled::Already { .. })).count();
        assert_eq!((new, told), (1, 1), "{all:?}");
    }
    assert_eq!(world.counts().await.waiting, 20);
}

#[tokio::test]
async fn a_cancelled_message_is_not_delivered_and_one_in_flight_is_not_delivered_again() {
    let world = World::new().await;
    for key in ["early", "held"] {
        world.work.schedule(key, Moved::at(SECOND), b"").await.unwrap();
    }
    assert_eq!(world.work.cancel("early").await.unwrap(), Cancelled::Done);
    assert_eq!(world.work.cancel("early").await.unwrap(), Cancelled::Unknown, "a second time there is nothing");
    world.clock.advance(SECOND);
    let mut hand = Hand::of(&world);
    let held = hand.take(9).await;
    assert_eq!((held.len(), id(&held[0])), (1, "held"));
    assert_eq!(
        world.work.cancel("held").await.unwrap(),
        Cancelled::Delivering,
        "whether it takes effect is the handler's"
    );
    let retry = Settlement::Retry(Retry::after(SECOND, Timestamp(1)));
    let gone = hand.settler.settle(&held[0].0, &held[0].1, &retry).await.unwrap_err();
    assert_eq!(gone.kind(), SourceErrorKind::Gone, "{gone}");
    world.clock.advance(1_000 * SECOND);
    hand.nothing().await;
    assert_eq!(world.work.cancel("held").await.unwrap(), Cancelled::Unknown);
}

#[tokio::test]
async fn a_message_that_cannot_be_stored_is_refused_with_the_rule_and_the_remedy() {
    let world = World::new().await;
    let late = Timestamp(9_000_000_000_000_001);
    let hundred_years = Duration::from_secs(100 * 366 * 86_400);
    for (work, words) in [
        (ScheduledTask::at("", Moved::at(SECOND), ""), "the key has 0 bytes, allowed are 1 to 255"),
        (ScheduledTask::at("x".repeat(256), Moved::at(SECOND), ""), "256 bytes, allowed are 1 to 255: hash"),
        (ScheduledTask::at("k", late, ""), "the limit is the year 2255: check the unit"),
        (ScheduledTask::after("k", hundred_years + SECOND, ""), "the limit is 100 years: check the unit"),
    ] {
        let refused = world.work.put(&work).await.unwrap_err();
        assert_eq!(refused.kind(), DelayErrorKind::Refused);
        assert!(refused.to_string().contains(words), "{refused}");
    }
    let refused = world.work.cancel("").await.unwrap_err();
    assert_eq!(refused.kind(), DelayErrorKind::Refused);
    assert_eq!(world.counts().await, Default::default());
    // What is at the limits is kept, and a time that is past is due at once.
    world.work.put(&ScheduledTask::at("x".repeat(255), Timestamp(9_000_000_000_000_000), "")).await.unwrap();
    world.work.put(&ScheduledTask::at("past", Timestamp(0), "")).await.unwrap();
    let taken = Hand::of(&world).take(9).await;
    assert_eq!((taken.len(), id(&taken[0])), (1, "past"));
}
