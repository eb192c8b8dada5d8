//! Mapping of messages to deliveries, and selection by tags.
use idempotent_harness::proxy::Proxy;
use idempotent_mq::{OutboundMessage, PublishErrorKind, Settlement, Source, SourceErrorKind};
use idempotent_rocketmq::RocketPublisher;

use crate::broker::world::{ManualConsumer, World};

#[tokio::test]
async fn a_message_of_another_client_has_its_uniq_key_as_id_and_its_keys_as_business_key() {
    let world = World::new("reading-1").await;
    let client = world.plain_client().await;
    let mut consumer = world.consumer();
    let properties = [("KEYS", "order-17"), ("TAGS", "paid"), ("tenant", "größe"), ("UNIQ_KEY", "7F00")];
    client.send(&world.topic, b"\0body", properties).await;
    let (delivery, tag) = consumer.next().await;
    assert_eq!((delivery.id.as_deref(), delivery.business_key.as_deref()), (Some("7F00"), Some("order-17")));
    assert_eq!(delivery.headers, [("TAGS", "paid"), ("tenant", "größe")].into_iter().collect());
    assert_eq!((&delivery.body[..], delivery.attempt, delivery.delivered), (&b"\0body"[..], Some(1), None));
    consumer.settle(&(delivery, tag), &Settlement::Ack).await.unwrap();
    // The client generates an id for a message without one.
    client.send(&world.topic, b"b", []).await;
    let held = consumer.next().await;
    assert!(held.0.id.as_ref().is_some_and(|id| id.len() >= 32));
    consumer.settle(&held, &Settlement::Ack).await.unwrap();
    world.emptied().await;
}

#[tokio::test]
async fn only_messages_with_a_selected_tag_and_all_copies_are_delivered() {
    let world = World::new("reading-2").await;
    for (id, tag) in [("1", "sent"), ("2", "paid"), ("3", "lost"), ("4", "refunded")] {
        let topic = format!("{}:{tag}", world.topic);
        world.publish(OutboundMessage::new(topic, id, "b")).await;
    }
    let mut consumer = ManualConsumer(world.builder().tags("paid || refunded").build().unwrap());
    let paid = consumer.next().await;
    assert_eq!(paid.0.id.as_deref(), Some("2"));
    consumer.insist(&paid, &Settlement::GiveBack).await;
    let mut came = Vec::new();
    for _ in 0..2 {
        let held = consumer.next().await;
        came.extend(held.0.headers.first("TAGS").map(<[u8]>::to_vec));
        consumer.settle(&held, &Settlement::Ack).await.unwrap();
    }
    came.sort();
    assert_eq!(came, [&b"paid"[..], b"refunded"]);
}

#[tokio::test]
async fn a_prefetch_that_needs_too_many_threads_is_refused_and_works_with_larger_batches() {
    let world = World::new("reading-3").await;
    let mut consumer = world.consumer();
    let refused = consumer.0.receive(1_000).await.unwrap_err();
    assert_eq!(refused.kind(), SourceErrorKind::Fatal);
    assert!(refused.to_string().contains("set a larger batch"), "{refused}");
    world.publish(world.message("m", "b")).await;
    let mut consumer = ManualConsumer(world.builder().batch(10).build().unwrap());
    let held = consumer.take(1_000).await.remove(0);
    consumer.settle(&held, &Settlement::Ack).await.unwrap();
}

#[tokio::test]
async fn a_message_is_not_sent_without_a_name_server() {
    let nothing = Proxy::start("127.0.0.1:1").await;
    nothing.refuse();
    let second = std::time::Duration::from_secs(1);
    let publisher =
        RocketPublisher::builder(format!("rocketmq://{}", nothing.address())).give_up_after(second).build().unwrap();
    let error = publisher.publish(&OutboundMessage::new("orders", "m", "b")).await.unwrap_err();
    assert_eq!(error.kind(), PublishErrorKind::Unsent, "{error}");
}
