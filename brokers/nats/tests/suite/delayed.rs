//! Delayed messages: when they arrive, what survives, and what is refused.
use std::time::{SystemTime, UNIX_EPOCH};

use async_nats::jetstream::consumer::pull;
use async_nats::jetstream::stream::{self, RetentionPolicy};
use idempotent_core::Timestamp;
use idempotent_harness::servers::NatsServer;
use idempotent_mq::{OutboundMessage, Publish, PublishErrorKind, Settlement, Source, SourceErrorKind};
use idempotent_nats::{JetStreamPublisher, JetStreamSource};

use crate::publisher::publish;
use crate::world::{World, ms, one, secs, settle, until};

/// The subjects under which delayed messages wait.
const WAITING: &str = "idempotent.delayed.ORDERS.*";

impl World {
    /// Opens the consumer of a stream that delays messages.
    async fn delaying_source(&self) -> JetStreamSource {
        self.builder().delays().connect().await.unwrap()
    }

    fn publisher(&self) -> JetStreamPublisher {
        JetStreamPublisher::new(self.server.url())
    }

    /// Returns the number of messages in the stream.
    async fn stored(&self) -> u64 {
        self.client.get_stream("ORDERS").await.unwrap().cached_info().state.messages
    }
}

pub(crate) fn now() -> Timestamp {
    Timestamp(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros().try_into().unwrap())
}

fn message(id: &str) -> OutboundMessage {
    OutboundMessage::new("orders.new", id, "body")
}

#[tokio::test]
async fn a_delayed_message_arrives_as_it_was_sent_at_its_time_and_not_before() {
    let world = World::new().await;
    let mut source = world.delaying_source().await;
    let (publisher, settler) = (world.publisher(), source.settler());
    assert!(publisher.delays());
    publish(&publisher, message("now")).await.unwrap();
    let at_once = one(&mut source).await;
    assert_eq!(at_once.0.id.as_deref(), Some("now"));
    settle(&settler, &at_once, Settlement::Ack).await;
    let due = now() + secs(2);
    let sent = message("m-1")
        .business_key("order-17")
        .header("trace", "00-abc")
        .header("raw", [0, 255])
        .header("Nats-Schedule-Next", "purge")
        .deliver_at(due);
    let published = publish(&publisher, sent.clone()).await.unwrap();
    assert_eq!(published.position, None);
    let held = one(&mut source).await;
    assert!(now() >= due, "{:?} too early", due - now());
    let delivery = &held.0;
    assert_eq!((delivery.id.as_deref(), delivery.business_key.as_deref()), (Some("m-1"), Some("order-17")));
    assert_eq!((&*delivery.position.source, &*delivery.body), ("orders.new", &b"body"[..]));
    assert_eq!(delivery.headers.len(), 3, "{:?}", delivery.headers);
    for (name, value) in sent.headers.iter() {
        assert_eq!(delivery.headers.first(name), Some(value), "{name}");
    }
    settle(&settler, &held, Settlement::Ack).await;
    assert_eq!((world.open().await, world.stored().await), ((0, 0), 2), "the waiting copy is removed");
}

#[tokio::test]
async fn a_publisher_finds_the_stream_to_which_a_subject_has_moved() {
    let world = World::new().await;
    world.delaying_source().await;
    let (publisher, later) = (world.publisher(), now() + secs(3_600));
    publish(&publisher, message("m-1").deliver_at(later)).await.unwrap();
    let mut config = world.client.get_stream("ORDERS").await.unwrap().cached_info().config.clone();
    world.client.delete_stream("ORDERS").await.unwrap();
    config.name = "SALES".into();
    config.subjects.push("idempotent.delayed.SALES.*".into());
    let sales = world.client.create_stream(config).await.unwrap();
    let refused = publish(&publisher, message("m-2").deliver_at(later)).await.unwrap_err();
    assert_eq!(refused.kind(), PublishErrorKind::Refused, "{refused}");
    publish(&publisher, message("m-2").deliver_at(later)).await.unwrap();
    assert_eq!(sales.get_info().await.unwrap().state.messages, 1);
}

#[tokio::test]
async fn a_delayed_message_that_is_sent_again_arrives_once() {
    let world = World::new().await;
    let mut source = world.delaying_source().await;
    let due = now() + secs(2);
    for publisher in [world.publisher(), world.publisher()] {
        publish(&publisher, message("m-1").deliver_at(due)).await.unwrap();
        assert_eq!(world.stored().await, 1);
    }
    let held = one(&mut source).await;
    assert_eq!(held.0.id.as_deref(), Some("m-1"));
    assert_eq!((world.open().await, world.stored().await), ((1, 0), 1));
}

#[tokio::test]
async fn a_delayed_message_that_is_sent_again_after_the_duplicate_window_replaces_the_first_one() {
    let world = World::new().await;
    let mut source = world.delaying_source().await;
    let mut config = world.client.get_stream("ORDERS").await.unwrap().cached_info().config.clone();
    config.duplicate_window = ms(100);
    world.client.update_stream(config).await.unwrap();
    let publisher = world.publisher();
    // Long after the window, also on a loaded machine.
    let due = now() + secs(60);
    publish(&publisher, message("m-1").deliver_at(due)).await.unwrap();
    publish(&publisher, message("probe")).await.unwrap();
    until("the window has passed", async || {
        publish(&publisher, message("probe")).await.unwrap();
        world.stored().await > 2
    })
    .await;
    let stored = world.stored().await;
    // The second one is due soon.
    let again = OutboundMessage::new("orders.new", "m-1", "second").deliver_at(now() + secs(2));
    publish(&publisher, again).await.unwrap();
    assert_eq!(world.stored().await, stored, "one copy waits");
    let settler = source.settler();
    let mut arrived = Vec::new();
    while arrived.last().is_none_or(|id: &String| id != "m-1") {
        let held = one(&mut source).await;
        arrived.extend(held.0.id.as_deref().map(str::to_owned));
        if arrived.last().is_some_and(|id| id == "m-1") {
            assert_eq!(&*held.0.body, b"second");
        }
        settle(&settler, &held, Settlement::Ack).await;
    }
    assert_eq!(arrived.iter().filter(|id| *id == "m-1").count(), 1);
    assert_eq!((world.open().await, world.stored().await), ((0, 0), stored), "no copy waits");
}

#[tokio::test]
async fn an_overdue_message_arrives_after_the_restart_of_a_killed_server() {
    let world = World::on(NatsServer::start_durable()).await;
    world.delaying_source().await;
    publish(&world.publisher(), message("m-1").deliver_at(now() + secs(1))).await.unwrap();
    world.server.kill();
    world.server.restart();
    let mut source = world.delaying_source().await;
    assert_eq!(one(&mut source).await.0.id.as_deref(), Some("m-1"));
}

#[tokio::test]
async fn a_stream_that_would_lose_or_never_deliver_a_delayed_message_refuses_it_with_the_remedy() {
    let world = World::new().await;
    let publisher = world.publisher();
    let delays = |name: &str| stream::Config {
        name: name.into(),
        subjects: vec![format!("{name}.*"), format!("idempotent.delayed.{name}.*")],
        allow_message_schedules: true,
        allow_rollup: true,
        ..stream::Config::default()
    };
    let cases = [
        ("off", stream::Config { allow_message_schedules: false, ..delays("off") }, "`allow_msg_schedules`"),
        ("bare", stream::Config { subjects: vec!["bare.*".into()], ..delays("bare") }, "`idempotent.delayed.bare.*`"),
        ("picky", stream::Config { retention: RetentionPolicy::Interest, ..delays("picky") }, "`workqueue`"),
        ("short", stream::Config { max_age: secs(60), ..delays("short") }, "raise `max_age`"),
    ];
    let later = |topic: String| OutboundMessage::new(topic, "m", "").deliver_at(now() + secs(3_600));
    for (name, config, part) in cases {
        world.client.create_stream(config).await.unwrap();
        let error = publish(&publisher, later(format!("{name}.new"))).await.unwrap_err();
        assert!(error.kind() == PublishErrorKind::Refused && error.to_string().contains(part), "{error}");
        let stored = world.client.get_stream(name).await.unwrap().cached_info().state.messages;
        assert_eq!(stored, 0, "{name}");
    }
    let error = publish(&publisher, later("nowhere".into())).await.unwrap_err();
    assert!(error.kind() == PublishErrorKind::Refused && error.to_string().contains("create a stream"), "{error}");
    let error = publish(&publisher, later("a b".into())).await.unwrap_err();
    assert!(error.to_string().contains("not a subject"), "{error}");
}

#[tokio::test]
async fn a_source_that_delays_refuses_a_stream_or_a_consumer_that_cannot() {
    let world = World::new().await;
    world.source().await;
    let error = world.builder().delays().connect().await.map(drop).unwrap_err();
    assert!(error.kind() == SourceErrorKind::Fatal && error.to_string().contains("2.12 or later"), "{error}");

    world.client.delete_stream("ORDERS").await.unwrap();
    world.delaying_source().await;
    // A second consumer of the stream needs no setting.
    JetStreamSource::builder(world.server.url(), "ORDERS", "audit").declare(["orders.>"]).connect().await.unwrap();
    let stream = world.client.get_stream("ORDERS").await.unwrap();
    for (name, filter) in [("all", ""), ("early", WAITING)] {
        let config = pull::Config {
            durable_name: Some(name.into()),
            filter_subject: filter.into(),
            ack_policy: async_nats::jetstream::consumer::AckPolicy::Explicit,
            ..pull::Config::default()
        };
        stream.create_consumer(config).await.unwrap();
        let error = JetStreamSource::connect(world.server.url(), "ORDERS", name).await.map(drop).unwrap_err();
        assert!(error.kind() == SourceErrorKind::Fatal && error.to_string().contains(WAITING), "{error}");
    }
}
