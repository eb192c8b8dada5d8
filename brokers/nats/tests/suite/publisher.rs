//! The publisher: what is confirmed, refused and recognized as sent before.
use idempotent_harness::servers::NatsServer;
use idempotent_mq::{OutboundMessage, Publish, PublishError, PublishErrorKind, Published};
use idempotent_nats::JetStreamPublisher;

use crate::world::{World, one};

pub(crate) async fn publish(
    publisher: &JetStreamPublisher,
    message: OutboundMessage,
) -> Result<Published, PublishError> {
    publisher.publish(&[message]).await.pop().unwrap()
}

fn message(id: &str) -> OutboundMessage {
    OutboundMessage::new("orders.new", id, "body")
}

#[tokio::test]
async fn a_message_arrives_as_it_was_sent_and_only_once() {
    let world = World::new().await;
    let mut source = world.source().await;
    let publisher = JetStreamPublisher::new(world.server.url());
    let sent = message("m-1")
        .business_key("order-17")
        .header("trace", "00-abc")
        .header("raw", [0, 255])
        .header("Nats-Rollup", "all");
    let first = publish(&publisher, sent.clone()).await.unwrap().position.unwrap();
    let again = publish(&publisher, sent.clone()).await.unwrap().position.unwrap();
    assert_eq!(
        (&*first.source, first.offset.as_deref(), &first),
        ("orders.new", Some("1"), &again),
        "the server drops the copy"
    );
    let (delivery, _) = one(&mut source).await;
    assert_eq!((delivery.id.as_deref(), delivery.business_key.as_deref()), (Some("m-1"), Some("order-17")));
    assert_eq!((delivery.body, delivery.headers.len()), (b"body".to_vec(), 3));
    for (name, value) in sent.headers.iter() {
        assert_eq!(delivery.headers.first(name), Some(value), "{name}");
    }
    assert_eq!(world.open().await, (1, 0), "one message, which is held");
}

#[tokio::test]
async fn messages_of_an_aggregate_keep_their_order_and_stop_at_the_first_that_is_refused() {
    let world = World::new().await;
    world.source().await;
    let publisher = JetStreamPublisher::new(world.server.url());
    let mut messages: Vec<_> = (0..20).map(|number| message(&format!("m-{number}")).aggregate("a")).collect();
    messages[10].topic = "payments".into();
    let results = publisher.publish(&messages).await;
    let offsets: Vec<_> =
        results[..10].iter().map(|sent| sent.as_ref().unwrap().position.clone().unwrap().offset.unwrap()).collect();
    assert_eq!(offsets, (1..=10).map(|offset: u32| offset.to_string().into()).collect::<Vec<Box<str>>>());
    let kinds: Vec<_> = results[10..].iter().map(|sent| sent.as_ref().unwrap_err().kind()).collect();
    assert_eq!(kinds[0], PublishErrorKind::Refused);
    assert!(kinds[1..].iter().all(|kind| *kind == PublishErrorKind::Unsent), "{kinds:?}");
}

#[tokio::test]
async fn each_refusal_names_its_reason() {
    let world = World::on(NatsServer::with("max_payload: 1KB")).await;
    world.source().await;
    let publisher = JetStreamPublisher::new(world.server.url());
    let mut cases = vec![
        (OutboundMessage::new("payments", "m", ""), "create a stream with this subject"),
        (OutboundMessage::new("orders.new", "m", vec![0; 2_000]), "raise `max_payload`"),
        (message("m").deliver_at(idempotent_core::Timestamp(1)), "the stream `ORDERS`: it cannot delay messages"),
    ];
    let full = async_nats::jetstream::stream::Config {
        name: "FULL".into(),
        subjects: vec!["full".into()],
        max_messages: 1,
        discard: async_nats::jetstream::stream::DiscardPolicy::New,
        ..Default::default()
    };
    world.client.create_stream(full).await.unwrap();
    publish(&publisher, OutboundMessage::new("full", "first", "")).await.unwrap();
    cases.push((OutboundMessage::new("full", "second", ""), "maximum messages exceeded"));
    for (message, part) in cases {
        let error = publish(&publisher, message).await.unwrap_err();
        assert!(error.kind() == PublishErrorKind::Refused && error.to_string().contains(part), "{error}");
    }
}

#[tokio::test]
async fn without_a_server_nothing_is_sent_and_with_one_again_the_publisher_goes_on() {
    let world = World::new().await;
    world.source().await;
    let nowhere = publish(&JetStreamPublisher::new("nats://127.0.0.1:1"), message("m")).await.unwrap_err();
    assert_eq!(nowhere.kind(), PublishErrorKind::Unsent, "{nowhere}");
    let publisher = JetStreamPublisher::new(world.server.url());
    publish(&publisher, message("m-1")).await.unwrap();
    world.server.kill();
    crate::world::until("the loss is noticed", async || {
        publish(&publisher, message("m-2")).await.is_err_and(|error| error.kind() == PublishErrorKind::Unsent)
    })
    .await;
    world.server.restart();
    crate::world::until("a message is confirmed", async || publish(&publisher, message("m-3")).await.is_ok()).await;
}

#[tokio::test]
async fn a_message_to_a_silent_server_is_unconfirmed_and_stored_once_when_it_is_sent_again() {
    let world = World::new().await;
    world.source().await;
    let publisher = JetStreamPublisher::new(world.server.url());
    publish(&publisher, message("m-1")).await.unwrap();
    world.server.pause();
    let error = publish(&publisher, message("m-2")).await.unwrap_err();
    assert_eq!(error.kind(), PublishErrorKind::Unconfirmed, "{error}");
    world.server.resume();
    crate::world::until("the message is confirmed", async || publish(&publisher, message("m-2")).await.is_ok()).await;
    assert_eq!(world.open().await.0, 2);
}
