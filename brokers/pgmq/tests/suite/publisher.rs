//! The publisher: what is stored, delayed and refused.
use std::sync::atomic::Ordering::SeqCst;

use idempotent_core::Timestamp;
use idempotent_mq::{OutboundMessage, Publish, PublishError, PublishErrorKind, Published};
use idempotent_pgmq::PgmqPublisher;

use crate::world::{Database, World, counting, one, until};

pub(crate) async fn publish(publisher: &PgmqPublisher, message: OutboundMessage) -> Result<Published, PublishError> {
    publisher.publish(&[message]).await.pop().unwrap()
}

fn message(id: &str) -> OutboundMessage {
    OutboundMessage::new("orders", id, "body")
}

#[tokio::test]
async fn a_message_arrives_as_it_was_sent() {
    let world = World::new().await;
    let mut source = world.source().await;
    let publisher = PgmqPublisher::new(world.url());
    let sent = message("m-1")
        .business_key("order-17")
        .header("via", "second")
        .header("via", "first")
        .header("raw", [0, 255])
        .header("idempotent", "{}");
    let position = publish(&publisher, sent.clone()).await.unwrap().position.unwrap();
    assert_eq!((&*position.source, position.offset.as_deref()), ("orders", Some("1")));
    let (delivery, _) = one(&mut source).await;
    assert_eq!((delivery.id.as_deref(), delivery.business_key.as_deref()), (Some("m-1"), Some("order-17")));
    assert_eq!((delivery.body, delivery.headers.len()), (b"body".to_vec(), 4));
    for name in ["via", "raw", "idempotent"] {
        assert!(delivery.headers.all(name).eq(sent.headers.all(name)), "{name}");
    }
    assert_eq!(delivery.position, position);
}

#[tokio::test]
async fn json_is_stored_as_jsonb_unless_its_bytes_must_be_exact() {
    let world = World::new().await;
    let mut source = world.source().await;
    let body = "{\"b\":1,\n \"a\":  2}";
    let sent = || OutboundMessage::new("orders", "m", body);
    publish(&PgmqPublisher::new(world.url()), sent()).await.unwrap();
    publish(&PgmqPublisher::new(world.url()).exact_bodies(), sent()).await.unwrap();
    assert_eq!(world.number("SELECT count(*) FROM pgmq.q_orders WHERE message ->> 'b' = '1'").await, 1);
    assert_eq!(one(&mut source).await.0.body, b"{\"a\": 2, \"b\": 1}");
    assert_eq!(one(&mut source).await.0.body, body.as_bytes());
}

#[tokio::test]
async fn messages_of_an_aggregate_keep_their_order_and_stop_at_the_first_that_is_refused() {
    let world = World::new().await;
    world.source().await;
    let publisher = PgmqPublisher::new(world.url());
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
async fn a_delayed_message_is_delivered_at_its_time_and_not_before() {
    let world = World::new().await;
    let mut source = world.source().await;
    let publisher = PgmqPublisher::new(world.url());
    assert!(publisher.delays());
    let now = world.number("SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint").await;
    let at = now + 400_000;
    publish(&publisher, message("m").deliver_at(Timestamp(at.try_into().unwrap()))).await.unwrap();
    assert_eq!(world.number("SELECT (extract(epoch FROM vt) * 1000000)::bigint FROM pgmq.q_orders").await, at);
    one(&mut source).await;
    let after = world.number("SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint").await;
    assert!(after >= at, "{} µs too early", at - after);
}

#[tokio::test]
async fn each_refusal_names_its_reason() {
    let world = World::new().await;
    world.source().await;
    let publisher = PgmqPublisher::new(world.url());
    let never = Timestamp(u64::MAX);
    for (message, part) in [
        (OutboundMessage::new("payments", "m", ""), "create the queue"),
        (OutboundMessage::new("a;b", "m", ""), "invalid characters"),
        (OutboundMessage::new("orders", "m\0", ""), "its `id` contains U+0000"),
        (message("m").deliver_at(never), "out of range"),
    ] {
        let error = publish(&publisher, message).await.unwrap_err();
        assert!(error.kind() == PublishErrorKind::Refused && error.to_string().contains(part), "{error}");
        assert!(error.to_string().contains("sending to the queue `"), "{error}");
    }
    let error = publish(&PgmqPublisher::new("amqp://localhost"), message("m")).await.unwrap_err();
    assert!(error.to_string().contains("pgmq://USER[:PASSWORD]@HOST[:PORT]/DATABASE"), "{error}");
}

#[tokio::test]
async fn without_a_server_nothing_is_sent_and_with_one_again_the_publisher_goes_on() {
    let nowhere = publish(&PgmqPublisher::new("pgmq://postgres@127.0.0.1:1/db"), message("m")).await.unwrap_err();
    assert_eq!(nowhere.kind(), PublishErrorKind::Unsent, "{nowhere}");
    let world = World::of(Database::alone().await).await;
    world.source().await;
    let publisher = PgmqPublisher::new(world.url());
    publish(&publisher, message("m-1")).await.unwrap();
    world.database.server.kill();
    let lost = publish(&publisher, message("m-2")).await.unwrap_err();
    assert_ne!(lost.kind(), PublishErrorKind::Refused, "{lost}");
    until("the loss is noticed", async || {
        publish(&publisher, message("m-2")).await.is_err_and(|error| error.kind() == PublishErrorKind::Unsent)
    })
    .await;
    world.database.server.restart();
    until("a message is confirmed", async || publish(&publisher, message("m-3")).await.is_ok()).await;
}

#[tokio::test]
async fn a_message_to_a_silent_server_is_unconfirmed_and_runs_once_when_it_is_sent_again() {
    let world = World::of(Database::alone().await).await;
    let source = world.source().await;
    let publisher = PgmqPublisher::new(world.url());
    let message = || OutboundMessage::new("orders", "m-1", "1");
    // The publisher is connected.
    publish(&publisher, OutboundMessage::new("orders", "m-0", "0")).await.unwrap();
    world.database.server.pause();
    let error = publish(&publisher, message()).await.unwrap_err();
    assert_eq!(error.kind(), PublishErrorKind::Unconfirmed, "{error}");
    world.database.server.resume();
    until("the message is confirmed", async || publish(&publisher, message()).await.is_ok()).await;
    let (handling, runs) = counting();
    let running = world.run(source, handling);
    until("all messages are acknowledged", async || world.open().await == 0).await;
    running.ended().await.unwrap();
    assert_eq!(runs.load(SeqCst), 2);
}
