//! The publisher: what is sent, delayed and refused.
use std::collections::BTreeSet;
use std::time::{SystemTime, UNIX_EPOCH};

use idempotent_core::Timestamp;
use idempotent_mq::{OutboundMessage, Publish, PublishError, PublishErrorKind, Published};
use idempotent_sqs::SqsPublisher;
use idempotent_sqs::aws_sdk_sqs::types::MessageSystemAttributeName::{MessageDeduplicationId, MessageGroupId};

use crate::world::{World, client, client_in, ms, one, receive};

impl World {
    fn publisher(&self) -> SqsPublisher {
        SqsPublisher::new(self.client.clone())
    }

    fn message(&self, id: &str) -> OutboundMessage {
        OutboundMessage::new(&*self.name, id, "body")
    }
}

async fn publish(publisher: &SqsPublisher, message: OutboundMessage) -> Result<Published, PublishError> {
    publisher.publish(&[message]).await.pop().unwrap()
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros().try_into().unwrap()
}

#[tokio::test]
async fn a_message_arrives_as_it_was_sent_and_other_programs_can_read_it() {
    let world = World::new().await;
    let mut source = world.source().await;
    let sent = world
        .message("m-1")
        .business_key("order-17")
        .header("trace", "00-abc")
        .header("via", "second")
        .header("via", "first")
        .header("raw", [0, 255])
        .header("idempotent", "{}");
    let position = publish(&world.publisher(), sent.clone()).await.unwrap().position.unwrap();
    let seen = world.peek(&world.name).await.pop().unwrap();
    let attributes = seen.message_attributes().unwrap();
    assert_eq!((seen.body(), attributes["trace"].string_value()), (Some("body"), Some("00-abc")));
    assert_eq!(attributes["raw"].binary_value().unwrap().as_ref(), [0, 255]);
    let (delivery, _) = one(&mut source).await;
    assert_eq!((delivery.id.as_deref(), delivery.business_key.as_deref()), (Some("m-1"), Some("order-17")));
    assert_eq!((delivery.body, delivery.headers.len()), (b"body".to_vec(), 5));
    for name in ["trace", "via", "raw", "idempotent"] {
        assert!(delivery.headers.all(name).eq(sent.headers.all(name)), "{name}");
    }
    assert_eq!(delivery.position, position);
}

#[tokio::test]
async fn many_and_large_messages_are_sent_in_batches() {
    let world = World::new().await;
    let mut messages: Vec<_> = (0..25).map(|number| world.message(&format!("m-{number}"))).collect();
    // Three of these exceed the size of a batch.
    messages.extend(
        (25..30).map(|number| OutboundMessage::new(&*world.name, format!("m-{number}"), vec![b'x'; 100 << 10])),
    );
    let results = world.publisher().publish(&messages).await;
    assert!(results.iter().all(Result::is_ok), "{results:?}");
    let (mut source, mut ids) = (world.source().await, BTreeSet::new());
    while ids.len() < 30 {
        ids.extend(receive(&mut source, 10).await.into_iter().map(|(delivery, _)| delivery.id.unwrap()));
    }
    assert_eq!(ids.len(), 30);
}

#[tokio::test]
async fn messages_of_an_aggregate_keep_their_order_and_stop_at_the_first_that_is_refused() {
    let world = World::fifo().await;
    let mut messages: Vec<_> = (0..6).map(|number| world.message(&format!("a-{number}")).aggregate("a")).collect();
    messages[3].topic = "payments".into();
    messages.insert(1, world.message("alone"));
    let results = world.publisher().publish(&messages).await;
    let kinds: Vec<_> = results.iter().map(|sent| sent.as_ref().err().map(PublishError::kind)).collect();
    let (refused, unsent) = (Some(PublishErrorKind::Refused), Some(PublishErrorKind::Unsent));
    assert_eq!(kinds, [None, None, None, None, refused, unsent, unsent], "{results:?}");
    let mut source = world.source().await;
    let (mut ids, settler) = (Vec::new(), idempotent_mq::Source::settler(&source));
    while ids.len() < 4 {
        let held = one(&mut source).await;
        ids.extend(held.0.id.clone());
        crate::world::settle(&settler, &held, idempotent_mq::Settlement::Ack).await;
    }
    ids.retain(|id| id != "alone");
    assert_eq!(ids, ["a-0", "a-1", "a-2"]);
}

#[tokio::test]
async fn a_fifo_queue_gets_groups_and_drops_a_message_that_is_sent_again() {
    let world = World::fifo().await;
    let publisher = world.publisher();
    let messages =
        [world.message("m-1").aggregate("order 17"), world.message("m 2"), world.message("m-1").aggregate("x")];
    for message in messages {
        publish(&publisher, message).await.unwrap();
    }
    let seen = world.peek(&world.name).await;
    let attribute = |name| seen.iter().map(|message| message.attributes().unwrap()[&name].clone()).collect::<Vec<_>>();
    assert_eq!(seen.len(), 2, "the third message has the id of the first");
    let (groups, ids) = (attribute(MessageGroupId), attribute(MessageDeduplicationId));
    assert_eq!((ids[0].as_str(), groups[0].len(), ids[1].len()), ("m-1", 64, 64), "invalid texts are hashed");
    assert_eq!(groups[1], ids[1], "a message without an aggregate is its own group");
}

#[tokio::test]
async fn a_delayed_message_is_delivered_at_its_time_and_not_before() {
    let world = World::new().await;
    let mut source = world.source().await;
    let publisher = world.publisher();
    assert!(publisher.delays());
    let due = now() + 1_200_000;
    publish(&publisher, world.message("m").deliver_at(Timestamp(due))).await.unwrap();
    one(&mut source).await;
    assert!(now() >= due, "{} µs too early", due - now());
    publish(&publisher, world.message("past").deliver_at(Timestamp(1))).await.unwrap();
    assert_eq!(one(&mut source).await.0.id.as_deref(), Some("past"));
}

#[tokio::test]
async fn each_refusal_names_its_reason() {
    let (world, fifo) = (World::new().await, World::fifo().await);
    let publisher = world.publisher();
    let in_an_hour = Timestamp(now() + 3_600_000_000);
    let elsewhere = "https://sqs.us-east-1.amazonaws.com/1/orders";
    for (message, part) in [
        (OutboundMessage::new("payments", "m", ""), "create the queue"),
        (OutboundMessage::new("a;b", "m", ""), "`topic` is `a;b`; use a name"),
        (OutboundMessage::new(elsewhere, "m", ""), "create a client of `us-east-1`"),
        (world.message("m").deliver_at(in_an_hour), "at most 15 min"),
        (fifo.message("m").deliver_at(in_an_hour), "cannot delay single messages"),
    ] {
        let error = publish(&publisher, message).await.unwrap_err();
        assert!(error.kind() == PublishErrorKind::Refused && error.to_string().contains(part), "{error}");
    }
}

#[tokio::test]
async fn without_a_server_nothing_is_sent() {
    let unreachable = SqsPublisher::new(client("127.0.0.1:1"));
    let error = tokio::time::timeout(ms(60_000), publish(&unreachable, OutboundMessage::new("orders", "m", ""))).await;
    let error = error.unwrap().unwrap_err();
    assert!(error.kind() == PublishErrorKind::Unsent && error.to_string().contains("the endpoint"), "{error}");
    // The emulator has other queues in another region.
    let world = World::new().await;
    let other = SqsPublisher::new(client_in(&world.address, "us-east-1"));
    let error = publish(&other, world.message("m")).await.unwrap_err();
    assert!(error.to_string().contains("check the name, the region and the account"), "{error}");
}
