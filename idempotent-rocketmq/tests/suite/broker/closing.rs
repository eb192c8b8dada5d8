//! How a consumer's end looks to the others of its group.
use idempotent_mq::{Settlement, Source};
use idempotent_rocketmq::RocketMessage;

use crate::broker::world::{World, within};

#[tokio::test]
async fn what_was_not_handed_over_goes_to_others_once_what_was_is_settled_and_that_does_not_come_again() {
    let world = World::new("ends-1").await;
    let mut first = world.hand();
    for id in ["0", "1", "2", "3"] {
        world.publish(RocketMessage::new(id, "b")).await;
    }
    let held = first.take(4).await;
    let (held, others) = held.split_first().unwrap();
    // Of those it had, if it had more.
    for other in others {
        first.insist(other, &Settlement::GiveBack).await;
    }
    first.0.close().await;
    first.settle(held, &Settlement::Ack).await.unwrap();
    let mut second = world.hand();
    let mut came = Vec::new();
    for _ in 0..3 {
        let next = second.next().await;
        assert_eq!(next.0.attempt, Some(1), "what is given back is no attempt");
        came.extend(next.0.id.clone());
        second.settle(&next, &Settlement::Ack).await.unwrap();
    }
    came.sort();
    assert_eq!(came.concat(), "123");
    world.emptied().await;
}

#[tokio::test]
async fn the_last_acknowledgement_behind_the_end_is_known_to_the_broker_when_it_returns() {
    let world = World::new("ends-2").await;
    let mut hand = world.hand();
    world.publish(RocketMessage::new("m", "b")).await;
    let held = hand.next().await;
    hand.0.close().await;
    assert_eq!(world.left().await, 1);
    hand.settle(&held, &Settlement::Ack).await.unwrap();
    assert_eq!(world.left().await, 0);
}

#[tokio::test]
async fn a_source_that_holds_nothing_has_ended_when_close_returns_and_one_that_never_began_closes_at_once() {
    let world = World::new("ends-3").await;
    let mut hand = world.hand();
    hand.0.close().await;
    world.publish(RocketMessage::new("m", "b")).await;
    let held = hand.next().await;
    hand.settle(&held, &Settlement::Ack).await.unwrap();
    within("the end", hand.0.close()).await;
    assert_eq!(world.left().await, 0);
}
