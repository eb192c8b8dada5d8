//! Messages that a publisher has the broker deliver later.
use std::time::{Duration, Instant};

use idempotent_core::Timestamp;
use idempotent_mq::{
    Cancelled, Delay, DelayErrorKind, OutboundMessage, Publish, PublishErrorKind, Scheduled, Settlement, Source,
};
use idempotent_rabbitmq::{DelayTopology, Queue, RabbitDelay, RabbitProperties, RabbitPublisher, Route};
use lapin::ExchangeKind;
use lapin::message::BasicGetMessage;
use lapin::options::{ExchangeDeclareOptions, ExchangeDeleteOptions, QueueBindOptions, QueuePurgeOptions};
use lapin::types::{AMQPValue, FieldTable};

use crate::broker::world::{SERVER, World, ms, until, within};

const DAY: Duration = Duration::from_secs(24 * 3_600);

fn publisher(delays: DelayTopology) -> RabbitPublisher {
    RabbitPublisher::builder(SERVER.url()).delays(delays).give_up_after(Duration::from_secs(60)).build().unwrap()
}

fn both() -> [(&'static str, DelayTopology); 2] {
    [("classic", DelayTopology::classic()), ("quorum", DelayTopology::quorum())]
}

fn now() -> Timestamp {
    Timestamp(0) + std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap()
}

#[tokio::test]
async fn a_delayed_message_passes_several_levels_and_is_never_early() {
    let world = World::new("delayed").await;
    world.declare("delayed").await;
    let to = Route::queue("delayed");
    for (kind, delays) in both() {
        let publisher = publisher(delays);
        // Three levels; one level; four levels after rounding up.
        for asked in [700, 200, 1_401] {
            let sent = Instant::now();
            let message = OutboundMessage::new(&to, "m", "body").header("tenant", "acme");
            within("a confirm", publisher.publish_after(&message, ms(asked))).await.unwrap();
            let got = until("the message", async || world.take("delayed").await).await;
            assert!(sent.elapsed() >= ms(asked), "{kind}: after {:?} of {asked} ms", sent.elapsed());
            assert_eq!((&got.data[..], got.routing_key.as_str()), (&b"body"[..], "delayed"));
            assert_eq!(got.properties.message_id().as_ref().unwrap().as_str(), "m");
            assert_eq!(*got.properties.delivery_mode(), Some(2), "persistent");
            let headers = got.properties.headers().clone().unwrap();
            assert_eq!(headers.inner().get("tenant"), Some(&AMQPValue::LongString("acme".into())));
        }
        within("a confirm", publisher.publish_after(&OutboundMessage::new(&to, "m", ""), Duration::ZERO))
            .await
            .unwrap();
        let got = until("the message", async || world.take("delayed").await).await;
        assert!(got.properties.headers().clone().unwrap().inner().is_empty(), "an immediate message passes no levels");
    }
}

#[tokio::test]
async fn a_delayed_message_to_an_exchange_keeps_its_routing_key() {
    let world = World::new("delayed.topic").await;
    let durable = ExchangeDeclareOptions { durable: true, ..ExchangeDeclareOptions::default() };
    world
        .admin
        .exchange_declare("delayed.events".into(), ExchangeKind::Topic, durable, FieldTable::default())
        .await
        .unwrap();
    for (queue, key) in [("delayed.paid", "order.*.paid"), ("delayed.sent", "order.*.sent")] {
        world.declare(queue).await;
        let bind = QueueBindOptions::default();
        world
            .admin
            .queue_bind(queue.into(), "delayed.events".into(), key.into(), bind, FieldTable::default())
            .await
            .unwrap();
    }
    for (_, delays) in both() {
        let (publisher, to) = (publisher(delays), Route::exchange("delayed.events", "order.17.paid"));
        within("a confirm", publisher.publish_after(&OutboundMessage::new(&to, "m", ""), ms(300))).await.unwrap();
        let got = until("the message", async || world.take("delayed.paid").await).await;
        assert_eq!(got.routing_key.as_str(), "order.17.paid");
        assert_eq!(world.count("delayed.sent").await, 0);
    }
}

#[tokio::test]
async fn a_handler_sees_no_headers_of_the_delay() {
    let world = World::new("delayed.seen").await;
    let mut source = world.opened(Queue::quorum("delayed.seen")).await;
    let message = OutboundMessage::new("delayed.seen", "m", "b").header("tenant", "acme");
    let published = publisher(DelayTopology::quorum());
    published.publish_after(&message, ms(300)).await.unwrap();
    let got = source.next().await;
    assert_eq!(got.0.headers, [("tenant", "acme")].into_iter().collect());
    assert_eq!((got.0.attempt, got.0.delivered), (Some(1), Some(1)));
    source.settle(&got, Settlement::Ack).await.unwrap();
    source.0.close().await;
}

#[tokio::test]
async fn a_delayed_message_survives_a_restart_of_the_broker() {
    for (kind, delays) in both() {
        let queue = format!("delayed.killed.{kind}");
        let mut world = World::alone(&queue).await;
        world.declare(&queue).await;
        let (publisher, to) = (publisher(delays), Route::queue(&queue));
        // The levels exist before the restart.
        let delay = ms(6_300);
        within("a confirm", publisher.publish_after(&OutboundMessage::new(&to, "first", ""), delay)).await.unwrap();
        until("the first message", async || world.take(&queue).await).await;
        let sent = Instant::now();
        within("a confirm", publisher.publish_after(&OutboundMessage::new(&to, "second", ""), delay)).await.unwrap();
        assert_eq!(world.count(&queue).await, 0, "the message waits");
        if kind == "quorum" {
            SERVER.kill();
        }
        tokio::task::spawn_blocking(|| SERVER.restart()).await.unwrap();
        world.reconnect().await;
        let is_second = |got: &BasicGetMessage| got.properties.message_id().as_ref().unwrap().as_str() == "second";
        // A restart can restore taken messages, here the first one.
        until("the second message", async || world.take(&queue).await.filter(is_second)).await;
        assert!(sent.elapsed() >= delay, "{kind}: after {:?}", sent.elapsed());
    }
}

#[tokio::test]
async fn a_delay_of_years_waits_in_its_longest_level_and_blocks_no_shorter_delay() {
    let world = World::new("delayed.years").await;
    world.declare("delayed.years").await;
    let to = Route::queue("delayed.years");
    for (kind, delays) in both() {
        let publisher = publisher(delays);
        // The last delay uses the longest level.
        for days in [3, 400, 13 * 365] {
            within("a confirm", publisher.publish_after(&OutboundMessage::new(&to, "far", ""), DAY * days))
                .await
                .unwrap();
        }
        let base = if kind == "quorum" { "idempotent.delay" } else { "idempotent.delay.classic" };
        let mut levels = Vec::new();
        for level in [209_715_200_u64, 26_843_545_600, 214_748_364_800] {
            let queue = format!("{base}.{level}");
            until("the message in its level", async || (world.count(&queue).await == 1).then_some(())).await;
            levels.push(queue);
        }
        within("a confirm", publisher.publish_after(&OutboundMessage::new(&to, "near", ""), ms(100))).await.unwrap();
        let got = until("the near message", async || world.take("delayed.years").await).await;
        assert_eq!(got.properties.message_id().as_ref().unwrap().as_str(), "near");
        let refused = publisher.publish_after(&OutboundMessage::new(&to, "m", ""), DAY * 14 * 366).await.unwrap_err();
        assert_eq!(refused.kind(), PublishErrorKind::Refused);
        assert!(refused.to_string().contains("13 years"), "{refused}");
        for level in levels {
            assert_eq!(world.count(&level).await, 1, "it still waits in {level}");
            world.admin.queue_purge(level.into(), QueuePurgeOptions::default()).await.unwrap();
        }
    }
}

#[tokio::test]
async fn a_delayed_message_without_a_destination_or_with_an_expiry_is_refused_at_once() {
    let world = World::new("delayed.nowhere").await;
    let publisher = publisher(DelayTopology::classic());
    let none = publisher.publish_after(&OutboundMessage::new("delayed.nowhere", "m", ""), DAY).await;
    assert_eq!(none.unwrap_err().kind(), PublishErrorKind::Refused);
    let none =
        publisher.publish_after(&OutboundMessage::new(Route::exchange("delayed.nowhere", "k"), "m", ""), DAY).await;
    assert_eq!(none.unwrap_err().kind(), PublishErrorKind::Refused);
    world.declare("delayed.nowhere").await;
    let message = OutboundMessage::new("delayed.nowhere", "m", "").deliver_at(now() + DAY);
    let expires = RabbitProperties::default().expires_after(ms(100));
    let refused = publisher.publish_with(&message, &expires).await.unwrap_err();
    assert!(refused.kind() == PublishErrorKind::Refused && refused.to_string().contains("expires_after"), "{refused}");
    assert_eq!(world.count("delayed.nowhere").await, 0);
}

#[tokio::test]
async fn a_deleted_exchange_of_the_delays_is_declared_again() {
    let world = World::alone("delayed.deleted").await;
    world.declare("delayed.deleted").await;
    let (publisher, to) = (publisher(DelayTopology::classic()), Route::queue("delayed.deleted"));
    for exchange in ["idempotent.delay.classic", "idempotent.delay.classic.deliver"] {
        publisher.publish_after(&OutboundMessage::new(&to, "before", ""), ms(100)).await.unwrap();
        until("the message", async || world.take("delayed.deleted").await).await;
        world.admin.exchange_delete(exchange.into(), ExchangeDeleteOptions::default()).await.unwrap();
        within("a confirm", publisher.publish_after(&OutboundMessage::new(&to, "after", ""), ms(100))).await.unwrap();
        let got = until("the message", async || world.take("delayed.deleted").await).await;
        assert_eq!(got.properties.message_id().as_ref().unwrap().as_str(), "after");
    }
}

#[tokio::test]
async fn work_is_scheduled_unchecked_and_cancelling_is_unsupported() {
    let world = World::new("delayed.work").await;
    world.declare("delayed.work").await;
    let publisher = publisher(DelayTopology::quorum());
    let limits: Box<dyn Delay> = Box::new(RabbitDelay::new(publisher.clone(), Route::queue("delayed.work")));
    let at = now() + ms(900);
    for _ in 0..2 {
        assert_eq!(limits.schedule("order-17", at, b"17").await.unwrap(), Scheduled::Unchecked);
    }
    assert_eq!(limits.cancel("order-17").await.unwrap(), Cancelled::Unsupported);
    for _ in 0..2 {
        let got = until("the work", async || world.take("delayed.work").await).await;
        assert!(now() >= at, "the work is early");
        assert_eq!((got.properties.message_id().as_ref().unwrap().as_str(), &got.data[..]), ("order-17", &b"17"[..]));
    }
    limits.schedule("late", Timestamp(17), b"").await.unwrap();
    assert!(world.take("delayed.work").await.is_some(), "work that is due is in the queue after its confirm");
    let nowhere = RabbitDelay::new(publisher, Route::queue("delayed.work.missing"));
    assert_eq!(nowhere.schedule("k", at, b"").await.unwrap_err().kind(), DelayErrorKind::Refused);
}

#[tokio::test]
async fn messages_of_an_outbox_with_a_time_are_delayed_and_others_are_not() {
    let world = World::new("delayed.outbox").await;
    world.declare("delayed.outbox").await;
    let publisher: Box<dyn Publish> = Box::new(publisher(DelayTopology::quorum()));
    assert!(publisher.delays());
    let at = now() + ms(1_500);
    let message = |id: &str| OutboundMessage::new("delayed.outbox", id, "").aggregate("a");
    let messages =
        [message("1"), message("late").deliver_at(at), message("2"), message("past").deliver_at(Timestamp(1))];
    let results = within("answers", publisher.publish(&messages)).await;
    assert!(results.iter().all(Result::is_ok), "{results:?}");
    let mut ids = Vec::new();
    while ids.len() < 4 {
        let got = until("a message", async || world.take("delayed.outbox").await).await;
        ids.push(got.properties.message_id().as_ref().unwrap().to_string());
        assert!(ids.last().unwrap() != "late" || now() >= at);
    }
    assert_eq!(ids, ["1", "2", "past", "late"]);
}

#[tokio::test]
async fn a_broker_without_the_plugin_is_an_error_and_other_messages_are_unaffected() {
    let world = World::new("delayed.plugin").await;
    world.declare("delayed.plugin").await;
    let (publisher, to) = (publisher(DelayTopology::plugin()), Route::queue("delayed.plugin"));
    publisher.publish(&OutboundMessage::new(&to, "now", "")).await.unwrap();
    let refused =
        within("an answer", publisher.publish_after(&OutboundMessage::new(&to, "m", ""), ms(100))).await.unwrap_err();
    assert_eq!(refused.kind(), PublishErrorKind::Refused);
    assert!(refused.to_string().contains("rabbitmq_delayed_message_exchange"), "{refused}");
    let refused = publisher.publish_after(&OutboundMessage::new(&to, "m", ""), DAY * 50).await.unwrap_err();
    assert!(refused.to_string().contains("49 days"), "{refused}");
    publisher.publish(&OutboundMessage::new(&to, "now", "")).await.unwrap();
    assert_eq!(world.count("delayed.plugin").await, 2);
}
