//! Waiting: who is woken, by what, and what it costs. By the database's own clock.
use std::time::{Duration, Instant};

use idempotent_sqlx::ScheduledTask;

use super::world::{Hand, World, id};

const HOUR: Duration = Duration::from_secs(3_600);
const AFTER: Duration = Duration::from_millis(200);

/// Waits until the source asks nothing any more, after its first looks. Returns how often it has asked.
async fn at_rest(world: &World, hand: &mut Hand) -> u64 {
    for _ in 0..100 {
        let asked = world.work.__asked();
        hand.nothing().await;
        if world.work.__asked() == asked {
            return asked;
        }
    }
    panic!("it polls");
}

#[tokio::test]
async fn a_waiting_consumer_sends_no_statements_and_wakes_when_this_process_schedules() {
    // With polling alone, the delivery would be an hour late.
    let world = World::real(|builder| builder.poll(HOUR)).await;
    world.work.put(&ScheduledTask::after("far", HOUR * 2, "")).await.unwrap();
    let mut hand = Hand::of(&world);
    let asked = at_rest(&world, &mut hand).await;
    world.work.put(&ScheduledTask::after("farther", HOUR * 3, "")).await.unwrap();
    hand.nothing().await;
    assert_eq!(world.work.__asked(), asked + 1, "it need not look for what is due later: this is the writing");
    let start = Instant::now();
    world.work.put(&ScheduledTask::after("near", AFTER, "")).await.unwrap();
    assert_eq!(id(&hand.take(9).await[0]), "near");
    assert!(start.elapsed() >= AFTER, "too early: {:?}", start.elapsed());
    assert!(world.work.__asked() <= asked + 6, "it polls while it waits for what is due in a moment");
}

#[tokio::test]
async fn messages_of_a_committed_transaction_are_found_without_a_notification() {
    let world = World::real(|builder| builder.poll(HOUR)).await;
    let mut hand = Hand::of(&world);
    hand.nothing().await;
    let mut tx = world.begin().await;
    world.work.put_in(&mut tx, &ScheduledTask::after("k", AFTER, "")).await.unwrap();
    let committing = async {
        tokio::time::sleep(AFTER / 2).await;
        tx.commit().await.unwrap();
    };
    let (taken, ()) = tokio::join!(hand.take(9), committing);
    assert_eq!(id(&taken[0]), "k");
}

#[tokio::test]
async fn messages_that_fall_due_in_an_open_transaction_are_found_by_a_notification_after_the_commit() {
    let world = World::real(|builder| builder.poll(HOUR)).await;
    let mut hand = Hand::of(&world);
    let mut tx = world.begin().await;
    world.work.put_in(&mut tx, &ScheduledTask::after("k", Duration::ZERO, "")).await.unwrap();
    hand.nothing().await;
    tx.commit().await.unwrap();
    world.work.wake();
    assert_eq!(id(&hand.take(9).await[0]), "k");
}

#[tokio::test]
async fn messages_of_another_process_are_found_by_polling() {
    let world = World::real(|builder| builder.poll(Duration::from_millis(50))).await;
    // Of the same table, and with another bell.
    let elsewhere = idempotent_sqlx::DelayTable::builder(world.pool.clone()).table(&world.table).open().await.unwrap();
    let mut hand = Hand::of(&world);
    hand.nothing().await;
    elsewhere.put(&ScheduledTask::after("k", Duration::ZERO, "")).await.unwrap();
    assert_eq!(id(&hand.take(9).await[0]), "k");
}
