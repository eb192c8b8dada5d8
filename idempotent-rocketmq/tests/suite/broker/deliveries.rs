//! What a delivery is made of.
use idempotent_mq::{Settlement, Source, SourceErrorKind};
use idempotent_rocketmq::{PublishErrorKind, RocketMessage, RocketPublisher};
use idempotent_testkit::proxy::Proxy;

use crate::broker::world::{Hand, World};

#[tokio::test]
async fn s2_14_what_another_client_sends_has_its_uniq_key_for_an_id_and_its_keys_for_a_business_key() {
    let world = World::new("reading-1").await;
    let raw = world.raw().await;
    let mut hand = world.hand();
    let properties = [("KEYS", "order-17"), ("TAGS", "paid"), ("tenant", "größe"), ("UNIQ_KEY", "7F00")];
    raw.send(&world.topic, b"\0body", properties).await;
    let (delivery, tag) = hand.next().await;
    assert_eq!((delivery.id.as_deref(), delivery.business_key.as_deref()), (Some("7F00"), Some("order-17")));
    assert_eq!(delivery.headers, [("TAGS", "paid"), ("tenant", "größe")].into_iter().collect());
    assert_eq!((&delivery.body[..], delivery.attempt, delivery.delivered), (&b"\0body"[..], Some(1), None));
    hand.settle(&(delivery, tag), &Settlement::Ack).await.unwrap();
    // One that names no id is given one by its client.
    raw.send(&world.topic, b"b", []).await;
    let held = hand.next().await;
    assert!(held.0.id.as_ref().is_some_and(|id| id.len() >= 32));
    hand.settle(&held, &Settlement::Ack).await.unwrap();
    world.emptied().await;
}

#[tokio::test]
async fn only_messages_with_a_tag_of_the_expression_come_and_their_copies_do_whatever_their_tag() {
    let world = World::new("reading-2").await;
    for (id, tag) in [("1", "sent"), ("2", "paid"), ("3", "lost"), ("4", "refunded")] {
        world.publish(RocketMessage::new(id, "b").tag(tag)).await;
    }
    let mut hand = Hand(world.builder().tags("paid || refunded").build().unwrap());
    let paid = hand.next().await;
    assert_eq!(paid.0.id.as_deref(), Some("2"));
    hand.insist(&paid, &Settlement::GiveBack).await;
    let mut came = Vec::new();
    for _ in 0..2 {
        let held = hand.next().await;
        came.extend(held.0.headers.first("TAGS").map(<[u8]>::to_vec));
        hand.settle(&held, &Settlement::Ack).await.unwrap();
    }
    came.sort();
    assert_eq!(came, [&b"paid"[..], b"refunded"]);
}

#[tokio::test]
async fn a_prefetch_that_needs_more_threads_than_there_are_is_refused_and_larger_batches_are_the_remedy() {
    let world = World::new("reading-3").await;
    let mut hand = world.hand();
    let refused = hand.0.receive(1_000).await.unwrap_err();
    assert_eq!(refused.kind(), SourceErrorKind::Fatal);
    assert!(refused.to_string().contains("set a larger batch"), "{refused}");
    world.publish(RocketMessage::new("m", "b")).await;
    let mut hand = Hand(world.builder().batch(10).build().unwrap());
    let held = hand.take(1_000).await.remove(0);
    hand.settle(&held, &Settlement::Ack).await.unwrap();
}

#[tokio::test]
async fn b29_a_message_for_which_there_is_no_name_server_is_known_not_to_be_sent() {
    let nothing = Proxy::start("127.0.0.1:1").await;
    nothing.refuse();
    let second = std::time::Duration::from_secs(1);
    let publisher = RocketPublisher::builder(nothing.address()).give_up_after(second).build().unwrap();
    let error = publisher.publish("orders", &RocketMessage::new("m", "b")).await.unwrap_err();
    assert_eq!(error.kind(), PublishErrorKind::NotSent, "{error}");
}
