//! The numbers of messages, for operators.
use std::time::Duration;

use idempotent_mq::{DeliveryResult, PublishErrorKind};

use super::world::{World, message};
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
    let mut tx = world.begin().await;
    world.outbox.void(&mut tx, "refused", "anna", "not needed").await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(world.numbers().await, (1, 1, 1, Some(Duration::from_secs(3))));
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
