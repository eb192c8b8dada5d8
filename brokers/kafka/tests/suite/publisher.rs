//! The publisher: what is confirmed, refused, and sent to which partition.
use idempotent_kafka::{KafkaDeadLetters, KafkaPublisher};
use idempotent_mq::{DeadLetters, OutboundMessage, Publish, PublishError, PublishErrorKind, Published, Settlement};

use crate::world::{World, one, settle};

async fn publish(publisher: &KafkaPublisher, message: OutboundMessage) -> Result<Published, PublishError> {
    publisher.publish(&[message]).await.pop().unwrap()
}

fn message(id: &str) -> OutboundMessage {
    OutboundMessage::new("orders", id, "body")
}

#[tokio::test]
async fn a_message_arrives_as_it_was_sent() {
    let world = World::new(1).await;
    let mut source = world.source().await;
    let publisher = KafkaPublisher::new(world.url());
    let plain = message("m-1").business_key("order-17").header("trace", "00-abc").header("raw", [0, 255]);
    let sent = [plain.clone().header("idempotent-deaths", "9"), plain.aggregate("customer-4")];
    for (offset, sent) in sent.into_iter().enumerate() {
        let position = publish(&publisher, sent.clone()).await.unwrap().position.unwrap();
        assert_eq!(
            (&*position.source, position.partition, position.offset.as_deref()),
            ("orders", Some(0), Some(&*offset.to_string()))
        );
        let held = one(&mut source).await;
        assert_eq!((held.0.id.as_deref(), held.0.business_key.as_deref()), (Some("m-1"), Some("order-17")));
        assert!(held.0.body == b"body" && held.0.headers == sent.headers && held.0.deaths == 0);
        settle(&source, &held, Settlement::Ack).await;
    }
}

#[tokio::test]
async fn messages_of_an_aggregate_have_one_partition_and_keep_their_order() {
    let world = World::new(4).await;
    let publisher = KafkaPublisher::new(world.url());
    let messages: Vec<_> = (0..40).map(|n| message(&format!("m-{n}")).aggregate(format!("a-{}", n % 8))).collect();
    let positions: Vec<_> =
        publisher.publish(&messages).await.into_iter().map(|sent| sent.unwrap().position.unwrap()).collect();
    let offset = |at: usize| positions[at].offset.as_deref().unwrap().parse::<u64>().unwrap();
    for at in 8..40 {
        assert_eq!(positions[at].partition, positions[at - 8].partition);
        assert!(offset(at) > offset(at - 8));
    }
    assert!(positions.iter().any(|position| position.partition != positions[0].partition), "several partitions");
}

#[tokio::test]
async fn each_refusal_names_its_reason() {
    let world = World::new(1).await;
    let publisher = KafkaPublisher::new(world.url());
    let cases = [
        (message("m").deliver_at(idempotent_core::Timestamp(1)), "cannot delay"),
        (message("m").header("nul\0", ""), "NUL"),
        (OutboundMessage::new("no topic", "m", ""), "no topic"),
    ];
    for (message, part) in cases {
        let error = publish(&publisher, message).await.unwrap_err();
        assert!(error.kind() == PublishErrorKind::Refused && error.to_string().contains(part), "{error}");
    }
    let invalid = publish(&KafkaPublisher::new("http://localhost"), message("m")).await.unwrap_err();
    assert!(invalid.kind() == PublishErrorKind::Refused && invalid.to_string().contains("kafka://"), "{invalid}");
    let nowhere = publish(&KafkaPublisher::new("kafka://127.0.0.1:1"), message("m")).await.unwrap_err();
    assert_eq!(nowhere.kind(), PublishErrorKind::Unconfirmed, "{nowhere}");
    assert!(nowhere.to_string().contains("onnection refused"), "{nowhere}");
    let nowhere = KafkaDeadLetters::new("kafka://127.0.0.1:1", "orders").count().await.unwrap_err();
    assert!(nowhere.to_string().contains("onnection refused"), "{nowhere}");
}
