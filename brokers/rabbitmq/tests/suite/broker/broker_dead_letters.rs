//! Messages that the broker dead-letters itself.
use idempotent_mq::{DeadLetters, Redrive, Settlement, Source, StoredLetter};
use idempotent_rabbitmq::{Queue, RabbitDeadLetters};
use lapin::options::{BasicGetOptions, BasicRejectOptions};

use crate::broker::world::{ManualSource, SERVER, World, named, until};

fn letters_of(queue: &str) -> RabbitDeadLetters {
    RabbitDeadLetters::new(SERVER.url(), queue).unwrap()
}

/// Checks that the only dead letter has this reason and these deaths, and starts with its first attempt after a
/// redrive.
async fn is_redriven(world: &World, queue: Queue, reason: &str, deaths: u32) {
    let dead = format!("{}.dead", world.queue);
    until("the dead letter", async || (world.count(&dead).await == 1).then_some(())).await;
    let mut letters = letters_of(&world.queue);
    let StoredLetter { delivery, letter, .. } = letters.next().await.unwrap().unwrap();
    let letter = letter.unwrap();
    assert!(letter.reason.starts_with(reason), "{}", letter.reason);
    assert_eq!((delivery.id.as_deref(), &delivery.body[..]), (Some("m"), &b"body"[..]));
    assert_eq!((letter.deaths, letter.attempts, letter.id), (deaths, 1, None));
    assert!(letter.last_at.0 > 1_600_000_000_000_000, "{:?}", letter.last_at);
    drop(letters);
    until("the dead letter again", async || (world.count(&dead).await == 1).then_some(())).await;
    assert_eq!(Redrive::new().run(&mut letters_of(&world.queue)).await.put_back, 1);
    let mut source = ManualSource(world.source_of(queue), world.queue.clone());
    let back = source.next().await;
    assert_eq!((back.0.attempt, back.0.deaths, back.0.expires_at), (Some(1), deaths, None));
    source.settle(&back, Settlement::Ack).await.unwrap();
    source.0.close().await;
    assert_eq!(world.count(&dead).await, 0);
}

#[tokio::test]
async fn an_expired_message_is_a_dead_letter_that_can_be_put_back() {
    for (name, queue) in [
        ("dropped.expired.classic", Queue::classic("dropped.expired.classic").dead_letter_dropped()),
        ("dropped.expired.quorum", Queue::quorum("dropped.expired.quorum")),
    ] {
        let world = World::new(name).await;
        world.source_of(queue.clone()).declare().await.unwrap();
        world.send(b"body", named("m").with_expiration("1".into())).await;
        is_redriven(&world, queue, "expired", 1).await;
    }
}

#[tokio::test]
async fn a_message_over_a_length_limit_is_a_dead_letter_each_time() {
    let queue = || Queue::classic("dropped.full").argument("x-max-length", 1).dead_letter_dropped();
    let world = World::new("dropped.full").await;
    world.source_of(queue()).declare().await.unwrap();
    world.send(b"body", named("m")).await;
    world.send(b"newer", named("n")).await;
    let dead = "dropped.full.dead";
    until("the dead letter", async || (world.count(dead).await == 1).then_some(())).await;
    // The redriven message pushes out the newer one, which is removed here. The next message then pushes out the
    // redriven one.
    assert_eq!(Redrive::new().run(&mut letters_of("dropped.full")).await.put_back, 1);
    until("the newer one", async || world.take(dead).await).await;
    world.send(b"newest", named("n")).await;
    until("the dead letter", async || (world.count(dead).await == 1).then_some(())).await;
    assert!(world.take("dropped.full").await.is_some());
    is_redriven(&world, queue(), "maxlen", 2).await;
}

/// A consumer of another library answers `basic.reject` without requeue.
#[tokio::test]
async fn a_message_that_another_consumer_rejects_is_a_dead_letter_that_can_be_put_back() {
    for (name, queue) in [
        ("dropped.rejected.classic", Queue::classic("dropped.rejected.classic").dead_letter_dropped()),
        ("dropped.rejected.quorum", Queue::quorum("dropped.rejected.quorum")),
    ] {
        let world = World::new(name).await;
        world.source_of(queue.clone()).declare().await.unwrap();
        world.send(b"body", named("m")).await;
        let get = async || world.admin.basic_get(name.into(), BasicGetOptions::default()).await.unwrap();
        until("the message", get).await.acker.reject(BasicRejectOptions::default()).await.unwrap();
        is_redriven(&world, queue, "rejected", 1).await;
    }
}

#[tokio::test]
async fn a_message_over_the_delivery_limit_of_a_quorum_queue_is_a_dead_letter_with_that_reason() {
    let queue = || Queue::quorum("dropped.limit").argument("x-delivery-limit", 1);
    let world = World::new("dropped.limit").await;
    world.source_of(queue()).declare().await.unwrap();
    world.send(b"body", named("m")).await;
    for _ in 0..2 {
        let get = async || world.admin.basic_get("dropped.limit".into(), BasicGetOptions::default()).await.unwrap();
        let taken = until("the message", get).await;
        // Since RabbitMQ 4.3, `basic.nack` does not count towards the limit.
        taken.acker.reject(BasicRejectOptions { requeue: true }).await.unwrap();
    }
    is_redriven(&world, queue(), "delivery_limit", 1).await;
}
