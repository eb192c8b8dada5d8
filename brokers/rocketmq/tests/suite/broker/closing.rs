//! The end of a source, and its effect on the other members of the group.
use idempotent_mq::{Settlement, Source};

use crate::broker::world::{World, within};

#[tokio::test]
async fn messages_that_a_closed_source_has_not_delivered_go_to_another_member_of_the_group() {
    let world = World::new("ends-1").await;
    let mut first = world.consumer();
    for id in ["0", "1", "2", "3"] {
        world.publish(world.message(id, "b")).await;
    }
    let held = first.take(4).await;
    let (held, others) = held.split_first().unwrap();
    // The others of the first batch, if there are any.
    for other in others {
        first.insist(other, &Settlement::GiveBack).await;
    }
    first.0.close().await;
    first.settle(held, &Settlement::Ack).await.unwrap();
    let mut second = world.consumer();
    let mut came = Vec::new();
    for _ in 0..3 {
        let next = second.next().await;
        assert_eq!(next.0.attempt, Some(1), "giving back costs no attempt");
        came.extend(next.0.id.clone());
        second.settle(&next, &Settlement::Ack).await.unwrap();
    }
    came.sort();
    assert_eq!(came.concat(), "123");
    world.emptied().await;
}

#[tokio::test]
async fn the_last_acknowledgement_after_the_close_returns_when_the_broker_knows_it() {
    let world = World::new("ends-2").await;
    let mut consumer = world.consumer();
    world.publish(world.message("m", "b")).await;
    let held = consumer.next().await;
    consumer.0.close().await;
    assert_eq!(world.left().await, 1);
    consumer.settle(&held, &Settlement::Ack).await.unwrap();
    assert_eq!(world.left().await, 0);
}

#[tokio::test]
async fn close_waits_for_the_end_of_a_source_without_deliveries_and_returns_at_once_before_the_start() {
    let world = World::new("ends-3").await;
    let mut consumer = world.consumer();
    consumer.0.close().await;
    world.publish(world.message("m", "b")).await;
    let held = consumer.next().await;
    consumer.settle(&held, &Settlement::Ack).await.unwrap();
    within("the end of the source", consumer.0.close()).await;
    assert_eq!(world.left().await, 0);
}
