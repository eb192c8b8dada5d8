//! Both ways to retry.
use std::time::Instant;

use idempotent_mq::{Settlement, Source};

use crate::world::{World, ms, one, retry, settle};

#[tokio::test]
async fn a_retry_keeps_the_order_of_its_partition() {
    let world = World::new(1).await;
    let mut source = world.source().await;
    assert!(source.capabilities().keeps_order);
    for body in ["0", "1", "2"] {
        world.send(body).await;
    }
    let first = one(&mut source).await;
    let second = one(&mut source).await;
    let start = Instant::now();
    settle(&source, &first, retry(ms(400))).await;
    settle(&source, &second, Settlement::Ack).await;
    let mut bodies = Vec::new();
    for _ in 0..2 {
        let held = one(&mut source).await;
        bodies.push((held.0.body[0], held.0.attempt));
        settle(&source, &held, Settlement::Ack).await;
    }
    assert_eq!(bodies, [(b'0', Some(2)), (b'2', Some(1))], "the settled message does not come again");
    assert!(start.elapsed() >= ms(400));
    world.until_committed(0, 3).await;
}

#[tokio::test]
async fn a_message_in_the_retry_topic_blocks_nothing_and_its_attempt_survives_another_member() {
    let world = World::new(1).await;
    let builder = || world.builder().retry_topic("orders-billing-retry");
    let mut source = builder().connect().await.unwrap();
    assert!(!source.capabilities().keeps_order);
    for body in ["0", "1"] {
        world.send(body).await;
    }
    let first = one(&mut source).await;
    let id = first.0.id.clone();
    settle(&source, &first, retry(ms(300))).await;
    let second = one(&mut source).await;
    assert_eq!(second.0.body, b"1");
    settle(&source, &second, Settlement::Ack).await;
    world.until_committed(0, 2).await;
    source.close().await;
    let mut other = builder().connect().await.unwrap();
    let again = one(&mut other).await;
    assert_eq!((again.0.id.clone(), again.0.attempt), (id, Some(2)));
    assert_eq!(&*again.0.position.source, "orders-billing-retry");
    settle(&other, &again, Settlement::Ack).await;
    other.close().await;
}

#[tokio::test]
async fn a_partition_pauses_at_the_largest_distance_from_its_oldest_message() {
    let world = World::new(1).await;
    let mut source = world.builder().max_in_flight(3).connect().await.unwrap();
    for number in 0..5 {
        world.send(&number.to_string()).await;
    }
    let oldest = one(&mut source).await;
    for body in ["1", "2"] {
        let held = one(&mut source).await;
        assert_eq!(held.0.body, body.as_bytes());
        settle(&source, &held, Settlement::Ack).await;
    }
    let more = tokio::time::timeout(ms(300), source.receive(1)).await;
    assert!(more.is_err(), "the oldest message is unsettled");
    settle(&source, &oldest, Settlement::Ack).await;
    assert_eq!(one(&mut source).await.0.body, b"3");
}
