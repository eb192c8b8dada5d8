//! The publisher of an outbox: order, queues, positions, and refused messages.
use std::collections::{BTreeMap, BTreeSet};

use idempotent_harness::servers::RocketServer;
use idempotent_mq::{
    OutboundMessage, Position, Publish, PublishError, PublishErrorKind as Kind, Published, Settlement,
};
use idempotent_rocketmq::{RocketPublisher, RocketSource};

use crate::broker::world::{ManualConsumer, World, within};

pub(crate) type PublishResults = Vec<Result<Published, PublishError>>;

pub(crate) async fn publish(publisher: &RocketPublisher, messages: &[OutboundMessage]) -> PublishResults {
    within("all results", Publish::publish(publisher, messages)).await
}

pub(crate) fn kinds(results: &PublishResults) -> Vec<Option<Kind>> {
    results.iter().map(|results| results.as_ref().err().map(PublishError::kind)).collect()
}

fn place(results: &Result<Published, PublishError>) -> &Position {
    results.as_ref().unwrap().position.as_ref().unwrap()
}

#[tokio::test]
async fn a_message_of_an_outbox_is_delivered_unchanged_and_its_copies_keep_its_position() {
    let world = World::new("outbox-1").await;
    let full =
        OutboundMessage::new("outbox-1:paid", "m \"1\"\n\u{7}ü", vec![0, 255, b'\n', 1, 2]).business_key("order 17");
    let full = full.header("trace", "größe").header("raw", vec![0, 255]).header("via", "b").header("via", "a");
    let full = full.header("", "unnamed").header("empty", "").header("KEYS", "not the key");
    let bare = OutboundMessage::new("outbox-1", "m".repeat(255), "");
    let results = publish(&world.publisher, &[full.clone(), bare.clone()]).await;
    // The topic has one queue, and the messages were sent concurrently.
    let places: BTreeMap<_, _> =
        results.iter().map(|results| place(results).offset.clone()).zip([full, bare]).collect();
    assert_eq!(places.len(), 2);
    let (mut consumer, mut positions) = (world.consumer(), BTreeMap::new());
    for (offset, sent) in places {
        let held = consumer.next().await;
        let delivery = &held.0;
        assert_eq!(delivery.position, Position::of("outbox-1@broker-a").partition(0).offset(offset.unwrap()));
        assert_eq!((delivery.id.as_deref(), &delivery.business_key), (Some(&*sent.id), &sent.business_key));
        assert_eq!(delivery.body, sent.body);
        let tag = sent.topic.split_once(':').map(|(_, tag)| tag.as_bytes());
        assert_eq!(delivery.headers.first("TAGS"), tag);
        // Properties come first, ordered by name, and the packed headers follow in their order.
        for (name, _) in sent.headers.iter() {
            assert!(delivery.headers.all(name).eq(sent.headers.all(name)), "{name}");
        }
        let extra = usize::from(tag.is_some());
        assert_eq!(delivery.headers.len(), sent.headers.len() + extra);
        positions.insert(delivery.id.clone(), delivery.position.clone());
        consumer.settle(&held, &Settlement::GiveBack).await.unwrap();
    }
    for how in [Settlement::GiveBack, Settlement::Ack] {
        let mut copies = BTreeMap::new();
        for _ in 0..2 {
            let copy = consumer.next().await;
            copies.insert(copy.0.id.clone(), copy.0.position.clone());
            consumer.settle(&copy, &how).await.unwrap();
        }
        assert_eq!(copies, positions, "all copies have the position of the original");
    }
    // The producer sends a copy again if the broker responds late.
    let more = async {
        loop {
            let copy = consumer.next().await;
            assert_eq!(positions.get(&copy.0.id), Some(&copy.0.position));
            consumer.settle(&copy, &Settlement::Ack).await.unwrap();
        }
    };
    tokio::select! {
        () = world.emptied() => {}
        () = more => {}
    }
}

#[tokio::test]
async fn messages_of_an_aggregate_are_stored_in_order_in_one_queue_and_a_refused_one_stops_the_later_ones() {
    let world = World::new("outbox-2").await;
    let topic = "outbox-2-wide";
    let wide = RocketSource::builder(world.server.url(), topic, "outbox-2-wide-group").build().unwrap();
    wide.declare(4).await.unwrap();
    let of =
        |aggregate: &str, n: usize| OutboundMessage::new(topic, format!("{aggregate}{n}"), "{}").aggregate(aggregate);
    let mut messages: Vec<_> = (0..10).flat_map(|n| ["a", "b", "c", "d"].map(|name| of(name, n))).collect();
    messages.extend((0..20).map(|n| OutboundMessage::new(topic, format!("alone{n}"), "{}")));
    // The fifth message of `b`.
    messages[17] = messages[17].clone().header("long", "x".repeat(40_000));
    let results = publish(&world.publisher, &messages).await;
    let mut queues = BTreeMap::<_, BTreeSet<_>>::new();
    for (at, (message, results)) in messages.iter().zip(&results).enumerate() {
        let kind = results.as_ref().err().map(PublishError::kind);
        let expected = match (message.aggregate.as_deref(), at) {
            (Some("b"), 17) => Some(Kind::Refused),
            (Some("b"), 18..) => Some(Kind::Unsent),
            _ => None,
        };
        assert_eq!(kind, expected, "{}: {results:?}", message.id);
        if kind.is_none() {
            queues.entry(&message.aggregate).or_default().insert(place(results).partition);
        }
    }
    assert!(queues.iter().all(|(aggregate, queues)| queues.len() == if aggregate.is_some() { 1 } else { 4 }));
    // Another publisher selects the same queues.
    let other = RocketPublisher::builder(world.server.url()).build().unwrap();
    let later = publish(&other, &["a", "b", "c", "d"].map(|name| of(name, 10))).await;
    for (results, name) in later.iter().zip(["a", "b", "c", "d"]) {
        assert!(queues[&Some(name.to_owned())].contains(&place(results).partition), "{name}");
    }
    let mut consumer = ManualConsumer(wide);
    let mut came = BTreeMap::<_, Vec<_>>::new();
    let count = results.iter().chain(&later).filter(|results| results.is_ok()).count();
    for _ in 0..count {
        let held = consumer.next().await;
        let id = held.0.id.clone().unwrap();
        came.entry(id.trim_end_matches(|c: char| c.is_ascii_digit()).to_owned()).or_default().push(id);
        consumer.settle(&held, &Settlement::Ack).await.unwrap();
    }
    for name in ["a", "b", "c", "d"] {
        let numbers = (0..=10).filter(|n| name != "b" || !(4..10).contains(n));
        assert_eq!(came[name], numbers.map(|n| format!("{name}{n}")).collect::<Vec<_>>());
    }
}

#[tokio::test]
async fn a_message_that_the_broker_would_truncate_misread_or_reject_is_refused_with_the_remedy() {
    let world = World::new("outbox-3").await;
    let to = |topic: &str| OutboundMessage::new(topic, "m", "b");
    let here = |id: &str| OutboundMessage::new("outbox-3", id, "b");
    // Random bytes, which the client cannot compress.
    let mut bits = 1_u64;
    let mut noise = || {
        bits = bits.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        bits.to_be_bytes()[0]
    };
    let large: Vec<u8> = (0..6 << 20).map(|_| noise()).collect();
    let bad = [
        (to(""), "topic: the name is not allowed"),
        (to("no.dots"), "topic: the name is not allowed"),
        (to(&"t".repeat(128)), "topic: the name is not allowed"),
        (to("outbox-3:"), "id, business key or tag: empty"),
        (to("outbox-3:a\u{1}b"), "U+0001"),
        (to("SCHEDULE_TOPIC_XXXX"), "reserved for the broker"),
        (here(""), "id, business key or tag: empty"),
        (here("a\u{2}b"), "U+0002"),
        (here("m").business_key("\u{1}"), "U+0001"),
        (here("m").header("a", "x".repeat(30_000)), "RocketMQ stores 32 KB"),
        (here("m").header("a", vec![255; 30_000]), "RocketMQ stores 32 KB"),
        (OutboundMessage::new("outbox-3", "large", large), "maxMessageSize"),
    ];
    let messages: Vec<_> = bad.iter().map(|(message, _)| message.clone()).collect();
    for (results, (message, words)) in publish(&world.publisher, &messages).await.iter().zip(&bad) {
        let error = results.as_ref().unwrap_err();
        assert_eq!(error.kind(), Kind::Refused, "{message:?}: {error}");
        assert!(error.to_string().contains(words), "{error}");
    }
    assert_eq!(world.left().await, 0, "the topic is empty");
    assert!(publish(&world.publisher, &[]).await.is_empty());
}

#[tokio::test]
async fn a_missing_topic_is_refused_at_once_if_brokers_do_not_create_topics() {
    let server = tokio::task::spawn_blocking(RocketServer::that_makes_no_topics).await.unwrap();
    let publisher = RocketPublisher::builder(server.url()).build().unwrap();
    let messages = [
        OutboundMessage::new("BenchmarkTest", "1", "{}").aggregate("a"),
        OutboundMessage::new("misspelt", "2", "{}").aggregate("a"),
        OutboundMessage::new("BenchmarkTest", "3", "{}").aggregate("a"),
        OutboundMessage::new("misspelt", "4", "{}"),
    ];
    let results = publish(&publisher, &messages).await;
    assert_eq!(kinds(&results), [None, Some(Kind::Refused), Some(Kind::Unsent), Some(Kind::Refused)], "{results:?}");
    assert!(results[3].as_ref().unwrap_err().to_string().contains("create the topic first"), "{results:?}");
}
