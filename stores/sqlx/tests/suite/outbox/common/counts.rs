//! The numbers of messages, for operators.
use std::time::Duration;

use idempotent_mq::{DeliveryResult, PublishErrorKind};

use super::world::{World, message, of};
use crate::outbox::broker::Says;

impl World {
    /// Returns the unsent, unconfirmed and dead messages, and the age of the oldest unsent one.
    async fn numbers(&self) -> (u64, u64, u64, Option<Duration>) {
        let counts = self.outbox.counts().await.unwrap();
        (counts.unsent, counts.unconfirmed, counts.dead, counts.oldest_unsent)
    }
}

#[tokio::test]
async fn unsent_unconfirmed_and_dead_messages_are_counted_and_settled_ones_are_not() {
    let world = World::new().await;
    assert_eq!(world.numbers().await, (0, 0, 0, None));
    world.broker.say_of("refused", Says::Fails(PublishErrorKind::Refused));
    world.put(&["refused", "sent", "confirmed", "dead"].map(message)).await;
    world.pass(7);
    world.put(&[message("late")]).await;
    world.pass(3);
    assert_eq!(world.numbers().await, (5, 0, 0, Some(Duration::from_secs(10))));
    world.broker.say_of("late", Says::Fails(PublishErrorKind::Unsent));
    assert_eq!(world.round().await.sent, 3);
    assert_eq!(world.numbers().await, (2, 3, 0, Some(Duration::from_secs(10))));
    world.conclude("confirmed", 1, DeliveryResult::Done).await;
    world.conclude("dead", 1, DeliveryResult::DeadLettered).await;
    assert_eq!(world.numbers().await, (2, 1, 1, Some(Duration::from_secs(10))));
    world.void("refused").await;
    assert_eq!(world.numbers().await, (1, 1, 1, Some(Duration::from_secs(3))));
}

#[tokio::test]
async fn the_backlog_shows_what_is_due_leased_held_back_and_dead_up_to_its_limit() {
    let world = World::new().await;
    let shown = async |cap| {
        let backlog = world.outbox.backlog(cap).await.unwrap();
        let counts =
            [backlog.unsent, backlog.unconfirmed, backlog.due, backlog.leased, backlog.held_back, backlog.dead];
        (counts.map(|count| count.to_string()), backlog.oldest_unsent)
    };
    let texts = |counts: [&str; 6]| counts.map(str::to_owned);
    assert_eq!(shown(10).await, (texts(["0", "0", "0", "0", "0", "0"]), None));
    world.broker.say_of("a1", Says::Fails(PublishErrorKind::Refused));
    world.put(&[of("a1", "a"), of("a2", "a"), message("sent"), message("dead"), message("confirmed")]).await;
    world.pass(7);
    assert_eq!(shown(10).await, (texts(["5", "0", "4", "0", "1", "0"]), Some(Duration::from_secs(7))));
    assert_eq!(shown(4).await, (texts(["4+", "0+", "4+", "0+", "1+", "0"]), Some(Duration::from_secs(7))));
    assert_eq!(shown(5).await.0, texts(["5", "0", "4", "0", "1", "0"]));
    assert_eq!(world.round().await.sent, 3);
    world.conclude("dead", 1, DeliveryResult::DeadLettered).await;
    world.conclude("confirmed", 1, DeliveryResult::Done).await;
    // The first one of its aggregate is sent later, so the second one is held back.
    assert_eq!(shown(10).await, (texts(["2", "1", "0", "0", "1", "1"]), Some(Duration::from_secs(7))));
    assert_eq!(shown(0).await.0, texts(["0+", "0+", "0+", "0+", "0+", "0+"]));

    // A relay holds both.
    world.sql("UPDATE outbox SET lease_until=9000000000000000 WHERE status=0 AND sent_at IS NULL").await;
    assert_eq!(shown(10).await.0, texts(["2", "1", "0", "2", "0", "1"]));
}

#[tokio::test]
async fn the_backlog_takes_the_longest_due_first_and_judges_times_exactly() {
    let world = World::new().await;
    let shown = async |cap| {
        let backlog = world.outbox.backlog(cap).await.unwrap();
        let counts = [backlog.unsent, backlog.due, backlog.leased].map(|count| count.to_string());
        (counts, backlog.oldest_unsent.map(|age| age.as_secs()))
    };
    let texts = |counts: [&str; 3]| counts.map(str::to_owned);
    world.put(&[message("first")]).await;
    assert_eq!(shown(10).await, (texts(["1", "1", "0"]), Some(0)), "due from this moment on");
    world.pass(7);
    world.put(&[message("late")]).await;
    assert_eq!(shown(0).await.1, Some(7), "one message is read, and it is the first one");
    let first = format!("WHERE id={}", world.bytes("first"));
    world.sql(&format!("UPDATE outbox SET lease_until=created_at+7000000 {first}")).await;
    assert_eq!(shown(10).await.0, texts(["2", "2", "0"]), "a lease ends at its time");
    world.sql(&format!("UPDATE outbox SET lease_until=created_at+7001000 {first}")).await;
    assert_eq!(shown(10).await.0, texts(["2", "1", "1"]), "a relay holds the first one");
    world.sql(&format!("UPDATE outbox SET sent_at=created_at {first}")).await;
    assert_eq!(shown(10).await, (texts(["1", "1", "1"]), Some(0)), "the age is that of unsent messages");
}

#[tokio::test]
async fn a_dead_message_holds_back_the_later_ones_of_its_aggregate() {
    let world = World::new().await;
    world.put(&[of("a1", "a"), of("a2", "a")]).await;
    world.broker.say_of("a1", Says::Fails(PublishErrorKind::Refused));
    for _ in 0..4 {
        world.round().await;
        world.pass(20);
    }
    let backlog = world.outbox.backlog(10).await.unwrap();
    let counts = [backlog.unsent, backlog.due, backlog.held_back, backlog.dead].map(|count| count.at_least);
    assert_eq!(counts, [1, 0, 1, 1]);
}

#[tokio::test]
async fn a_message_given_up_unsent_is_dead_and_no_longer_unsent() {
    let world = World::new().await;
    world.broker.say_of("refused", Says::Fails(PublishErrorKind::Refused));
    world.put(&[message("refused")]).await;
    for _ in 0..3 {
        assert_eq!(world.round().await.failed, 1);
        world.pass(20);
    }
    assert_eq!(world.round().await.given_up, 1);
    assert_eq!(world.numbers().await, (0, 0, 1, None));
}
