//! Delayed publishing by the broker's delay levels, directly, from an outbox, and by `Delay`.
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use idempotent_core::Timestamp;
use idempotent_harness::proxy::Proxy;
use idempotent_harness::servers::RocketServer;
use idempotent_mq::{
    Cancelled, Delay, DelayErrorKind, OutboundMessage, Publish, PublishErrorKind, PublishErrorKind as OutboxKind,
    Scheduled, Settlement,
};
use idempotent_rocketmq::{RocketDelay, RocketPublisher};

use crate::broker::world::{ManualConsumer, World, within};

const HOUR: Duration = Duration::from_secs(3_600);

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn now() -> Timestamp {
    Timestamp(0) + SystemTime::UNIX_EPOCH.elapsed().unwrap()
}

/// Returns a publisher that accepts all delays up to two hours.
fn lenient(world: &World) -> RocketPublisher {
    RocketPublisher::builder(world.server.url()).max_lateness(HOUR).build().unwrap()
}

/// Returns a consumer that is connected, so that it receives a message as soon as the broker delivers it.
async fn connected(world: &World) -> ManualConsumer {
    let mut consumer = world.consumer();
    world.publish(world.message("first", "b")).await;
    let held = consumer.next().await;
    consumer.settle(&held, &Settlement::Ack).await.unwrap();
    consumer
}

#[tokio::test]
async fn a_delayed_message_is_delivered_unchanged_and_never_early() {
    let world = World::new("delayed-1").await;
    let mut consumer = connected(&world).await;
    // A level; and a delay that is rounded up to a level.
    for delay in [ms(1_000), ms(600)] {
        let topic = format!("{}:paid", world.topic);
        let message = OutboundMessage::new(topic, "m", "body").business_key("order-17").header("tenant", "acme");
        let sent = Instant::now();
        within("a confirmation", world.publisher.publish_after(&message, delay)).await.unwrap();
        let held = consumer.next().await;
        assert!(sent.elapsed() >= delay, "delivered {:?} after a delay of {delay:?}", sent.elapsed());
        assert_eq!((held.0.id.as_deref(), held.0.business_key.as_deref()), (Some("m"), Some("order-17")));
        assert_eq!(held.0.headers, [("TAGS", "paid"), ("tenant", "acme")].into_iter().collect());
        assert_eq!((&held.0.body[..], held.0.attempt, held.0.redelivered), (&b"body"[..], Some(1), false));
        consumer.settle(&held, &Settlement::Ack).await.unwrap();
    }
    world.emptied().await;
}

#[tokio::test]
async fn a_delay_without_a_suitable_level_is_refused_and_stores_nothing() {
    let world = World::new("delayed-2").await;
    let message = world.message("m", "b");
    // The next level, 30 s, is 12 s longer; and all levels are shorter.
    for (delay, words) in [(ms(18_000), "raise max_lateness"), (2 * HOUR + ms(1), "DelayTable")] {
        let error = world.publisher.publish_after(&message, delay).await.unwrap_err();
        assert_eq!(error.kind(), PublishErrorKind::Refused, "{error}");
        let text = error.to_string();
        assert!(text.contains(words) && text.contains("1s 5s 10s 30s 1m"), "{text}");
    }
    let topic = world.topic.clone();
    let stored = move |server: &RocketServer| server.published(&topic) + server.delayed(4) + server.delayed(18);
    assert_eq!(world.blocking(stored).await, 0);
    let publisher = lenient(&world);
    within("a confirmation", publisher.publish_after(&OutboundMessage::new(&world.topic, "n", "b"), ms(18_000)))
        .await
        .unwrap();
}

#[tokio::test]
async fn a_publisher_uses_the_configured_levels_of_its_broker() {
    let started = tokio::task::spawn_blocking(|| Arc::new(RocketServer::with_delays("1s 3s"))).await.unwrap();
    let world = World::on(started, "delayed-3").await;
    let builder = RocketPublisher::builder(world.server.url());
    let publisher = builder.delay_levels("1s 3s").max_lateness(Duration::ZERO).build().unwrap();
    let (mut consumer, delay) = (connected(&world).await, ms(3_000));
    let sent = Instant::now();
    publisher.publish_after(&OutboundMessage::new(&world.topic, "m", "b"), delay).await.unwrap();
    let held = consumer.next().await;
    assert!(sent.elapsed() >= delay, "{:?}", sent.elapsed());
    consumer.settle(&held, &Settlement::Ack).await.unwrap();
    let invalid = RocketPublisher::builder(world.server.url()).delay_levels("1s, 3s").build().unwrap_err();
    assert!(invalid.to_string().contains("messageDelayLevel"), "{invalid}");
}

#[tokio::test]
async fn a_delayed_message_survives_a_restart_of_the_broker() {
    let world = World::alone("delayed-4").await;
    let (delay, sent) = (ms(10_000), Instant::now());
    world.publisher.publish_after(&OutboundMessage::new(&world.topic, "m", "b"), delay).await.unwrap();
    world.blocking(RocketServer::restart).await;
    let mut consumer = world.consumer();
    let held = consumer.next().await;
    assert!(sent.elapsed() >= delay, "{:?}", sent.elapsed());
    assert_eq!(held.0.id.as_deref(), Some("m"));
    consumer.insist(&held, &Settlement::Ack).await;
}

#[tokio::test]
async fn an_outbox_delays_only_by_a_publisher_that_accepts_all_delays() {
    let world = World::new("delayed-5").await;
    let (publisher, at) = (lenient(&world), now() + ms(4_000));
    let messages = [
        OutboundMessage::new(&world.topic, "later", "b").aggregate("a").deliver_at(at),
        OutboundMessage::new(&world.topic, "past", "b").aggregate("a").deliver_at(now()),
        OutboundMessage::new(&world.topic, "too late", "b").deliver_at(now() + 2 * HOUR + ms(60_000)),
    ];
    assert!(publisher.delays());
    let results = within("all results", Publish::publish(&publisher, &messages)).await;
    assert_eq!(results[0].as_ref().unwrap().position, None, "the broker reports the position of the delay");
    assert!(results[1].as_ref().unwrap().position.is_some());
    assert_eq!(results[2].as_ref().unwrap_err().kind(), OutboxKind::Refused, "{results:?}");
    let mut consumer = world.consumer();
    for id in ["past", "later"] {
        let held = consumer.next().await;
        assert_eq!(held.0.id.as_deref(), Some(id));
        assert!(id == "past" || now() >= at, "{id} is early");
        consumer.settle(&held, &Settlement::Ack).await.unwrap();
    }
    // The default publisher refuses, instead of delivering at a time that depends on the relay.
    assert!(!world.publisher.delays());
    let refused = within("all results", Publish::publish(&world.publisher, &messages[..1])).await;
    let error = refused[0].as_ref().unwrap_err();
    assert_eq!(error.kind(), OutboxKind::Refused);
    assert!(error.to_string().contains("cannot delay"), "{error}");
}

#[tokio::test]
async fn scheduled_work_is_delivered_under_its_key_although_it_is_scheduled_twice_or_cancelled() {
    let world = World::new("delayed-6").await;
    let delay = RocketDelay::new(world.publisher.clone(), format!("{}:limit", world.topic));
    let mut consumer = connected(&world).await;
    let at = now() + ms(1_000);
    for _ in 0..2 {
        let scheduled = within("a confirmation", delay.schedule("order-17", at, b"17")).await;
        assert_eq!(scheduled.unwrap(), Scheduled::Unchecked);
    }
    assert_eq!(delay.cancel("order-17").await.unwrap(), Cancelled::Unsupported);
    for _ in 0..2 {
        let held = consumer.next().await;
        assert!(now() >= at, "early");
        assert_eq!((held.0.id.as_deref(), &held.0.body[..]), (Some("order-17"), &b"17"[..]));
        assert_eq!(held.0.headers.first("TAGS"), Some(&b"limit"[..]));
        consumer.settle(&held, &Settlement::Ack).await.unwrap();
    }
    world.emptied().await;
}

#[tokio::test]
async fn work_that_cannot_be_scheduled_is_an_error_by_what_is_known() {
    let world = World::new("delayed-7").await;
    let delay = RocketDelay::new(world.publisher.clone(), &world.topic);
    let no_level = delay.schedule("order-17", now() + ms(18_000), b"17").await.unwrap_err();
    assert_eq!(no_level.kind(), DelayErrorKind::Refused);
    assert!(no_level.to_string().contains("1s 5s 10s 30s"), "{no_level}");
    let no_key = delay.schedule("", now() + ms(1_000), b"17").await.unwrap_err();
    assert_eq!(no_key.kind(), DelayErrorKind::Refused);
    assert!(no_key.to_string().contains("id, business key or tag: empty"), "{no_key}");
    let unreachable = Proxy::start("127.0.0.1:1").await;
    unreachable.refuse();
    let publisher = RocketPublisher::builder(format!("rocketmq://{}", unreachable.address()))
        .give_up_after(ms(1_000))
        .build()
        .unwrap();
    let not_applied = RocketDelay::new(publisher, "limits").schedule("order-17", now(), b"17").await.unwrap_err();
    assert_eq!(not_applied.kind(), DelayErrorKind::NotApplied, "{not_applied}");
}
