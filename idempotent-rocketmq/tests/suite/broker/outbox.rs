//! The publisher as an outbox's relay uses it: order, queues, places, and what is refused.
use std::collections::{BTreeMap, BTreeSet};

use idempotent_mq::{
    OutboundMessage, Position, Publish, PublishError, PublishErrorKind as Kind, Published, Settlement,
};
use idempotent_rocketmq::{RocketPublisher, RocketSource};
use idempotent_testkit::servers::RocketServer;

use crate::broker::world::{Hand, World, within};

pub(crate) type Told = Vec<Result<Published, PublishError>>;

pub(crate) async fn publish(publisher: &RocketPublisher, messages: &[OutboundMessage]) -> Told {
    within("all answers", Publish::publish(publisher, messages)).await
}

pub(crate) fn kinds(told: &Told) -> Vec<Option<Kind>> {
    told.iter().map(|told| told.as_ref().err().map(PublishError::kind)).collect()
}

fn place(told: &Result<Published, PublishError>) -> &Position {
    told.as_ref().unwrap().position.as_ref().unwrap()
}

#[tokio::test]
async fn s3_2_what_an_outbox_sends_comes_back_whole_and_a_copy_of_it_says_the_same_place() {
    let world = World::new("outbox-1").await;
    let full =
        OutboundMessage::new("outbox-1:paid", "m \"1\"\n\u{7}ü", vec![0, 255, b'\n', 1, 2]).business_key("order 17");
    let full = full.header("trace", "größe").header("raw", vec![0, 255]).header("via", "b").header("via", "a");
    let full = full.header("", "unnamed").header("empty", "").header("KEYS", "not the key");
    let bare = OutboundMessage::new("outbox-1", "m".repeat(255), "");
    let told = publish(&world.publisher, &[full.clone(), bare.clone()]).await;
    // It has one queue, and they went side by side.
    let places: BTreeMap<_, _> = told.iter().map(|told| place(told).offset.clone()).zip([full, bare]).collect();
    assert_eq!(places.len(), 2);
    let (mut hand, mut there) = (world.hand(), BTreeMap::new());
    for (offset, sent) in places {
        let held = hand.next().await;
        let delivery = &held.0;
        assert_eq!(delivery.position, Position::of("outbox-1@broker-a").partition(0).offset(offset.unwrap()));
        assert_eq!((delivery.id.as_deref(), &delivery.business_key), (Some(&*sent.id), &sent.business_key));
        assert_eq!(delivery.body, sent.body);
        let tag = sent.topic.split_once(':').map(|(_, tag)| tag.as_bytes());
        assert_eq!(delivery.headers.first("TAGS"), tag);
        // Those that are properties stand first, by name; the others in their order.
        for (name, _) in sent.headers.iter() {
            assert!(delivery.headers.all(name).eq(sent.headers.all(name)), "{name}");
        }
        let extra = usize::from(tag.is_some());
        assert_eq!(delivery.headers.len(), sent.headers.len() + extra);
        there.insert(delivery.id.clone(), delivery.position.clone());
        hand.settle(&held, &Settlement::GiveBack).await.unwrap();
    }
    for how in [Settlement::GiveBack, Settlement::Ack] {
        let mut copies = BTreeMap::new();
        for _ in 0..2 {
            let copy = hand.next().await;
            copies.insert(copy.0.id.clone(), copy.0.position.clone());
            hand.settle(&copy, &how).await.unwrap();
        }
        assert_eq!(copies, there, "the same on each trip");
    }
    // A copy that the broker took and answered late was sent once more.
    let more = async {
        loop {
            let copy = hand.next().await;
            assert_eq!(there.get(&copy.0.id), Some(&copy.0.position));
            hand.settle(&copy, &Settlement::Ack).await.unwrap();
        }
    };
    tokio::select! {
        () = world.emptied() => {}
        () = more => {}
    }
}

#[tokio::test]
async fn b29_of_one_aggregate_all_lie_in_one_queue_in_order_and_one_that_is_refused_keeps_back_the_rest() {
    let world = World::new("outbox-2").await;
    let topic = "outbox-2-wide";
    let wide = RocketSource::builder(world.server.name_server(), topic, "outbox-2-wide-group").build().unwrap();
    wide.declare(4).await.unwrap();
    let of =
        |aggregate: &str, n: usize| OutboundMessage::new(topic, format!("{aggregate}{n}"), "{}").aggregate(aggregate);
    let mut messages: Vec<_> = (0..10).flat_map(|n| ["a", "b", "c", "d"].map(|name| of(name, n))).collect();
    messages.extend((0..20).map(|n| OutboundMessage::new(topic, format!("alone{n}"), "{}")));
    // The fifth of `b`.
    messages[17] = messages[17].clone().header("long", "x".repeat(40_000));
    let told = publish(&world.publisher, &messages).await;
    let mut queues = BTreeMap::<_, BTreeSet<_>>::new();
    for (at, (message, told)) in messages.iter().zip(&told).enumerate() {
        let kind = told.as_ref().err().map(PublishError::kind);
        let expected = match (message.aggregate.as_deref(), at) {
            (Some("b"), 17) => Some(Kind::Refused),
            (Some("b"), 18..) => Some(Kind::Unsent),
            _ => None,
        };
        assert_eq!(kind, expected, "{}: {told:?}", message.id);
        if kind.is_none() {
            queues.entry(&message.aggregate).or_default().insert(place(told).partition);
        }
    }
    assert!(queues.iter().all(|(aggregate, queues)| queues.len() == if aggregate.is_some() { 1 } else { 4 }));
    // Another publisher, later: the same queue.
    let other = RocketPublisher::builder(world.server.name_server()).build().unwrap();
    let later = publish(&other, &["a", "b", "c", "d"].map(|name| of(name, 10))).await;
    for (told, name) in later.iter().zip(["a", "b", "c", "d"]) {
        assert!(queues[&Some(name.to_owned())].contains(&place(told).partition), "{name}");
    }
    let mut hand = Hand(wide);
    let mut came = BTreeMap::<_, Vec<_>>::new();
    let count = told.iter().chain(&later).filter(|told| told.is_ok()).count();
    for _ in 0..count {
        let held = hand.next().await;
        let id = held.0.id.clone().unwrap();
        came.entry(id.trim_end_matches(|c: char| c.is_ascii_digit()).to_owned()).or_default().push(id);
        hand.settle(&held, &Settlement::Ack).await.unwrap();
    }
    for name in ["a", "b", "c", "d"] {
        let numbers = (0..=10).filter(|n| name != "b" || !(4..10).contains(n));
        assert_eq!(came[name], numbers.map(|n| format!("{name}{n}")).collect::<Vec<_>>());
    }
}

#[tokio::test]
async fn n94_b29_what_the_broker_would_cut_or_misread_or_turn_down_is_refused_with_the_remedy() {
    let world = World::new("outbox-3").await;
    let to = |topic: &str| OutboundMessage::new(topic, "m", "b");
    let here = |id: &str| OutboundMessage::new("outbox-3", id, "b");
    // Nothing that the client could make small enough.
    let mut bits = 1_u64;
    let mut noise = || {
        bits = bits.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        bits.to_be_bytes()[0]
    };
    let large: Vec<u8> = (0..6 << 20).map(|_| noise()).collect();
    let bad = [
        (to(""), "of a topic has"),
        (to("no.dots"), "of a topic has"),
        (to(&"t".repeat(128)), "of a topic has"),
        (to("outbox-3:"), "key or tag is empty"),
        (to("outbox-3:a\u{1}b"), "U+0001"),
        (to("SCHEDULE_TOPIC_XXXX"), "nobody may send"),
        (here(""), "an id, key or tag is empty"),
        (here("a\u{2}b"), "U+0002"),
        (here("m").business_key("\u{1}"), "U+0001"),
        (here("m").header("a", "x".repeat(30_000)), "room for 32 KB"),
        (here("m").header("a", vec![255; 30_000]), "room for 32 KB"),
        (OutboundMessage::new("outbox-3", "large", large), "maxMessageSize"),
    ];
    let messages: Vec<_> = bad.iter().map(|(message, _)| message.clone()).collect();
    for (told, (message, words)) in publish(&world.publisher, &messages).await.iter().zip(&bad) {
        let error = told.as_ref().unwrap_err();
        assert_eq!(error.kind(), Kind::Refused, "{message:?}: {error}");
        assert!(error.to_string().contains(words), "{error}");
    }
    assert_eq!(world.left().await, 0, "none is in the topic");
    assert!(publish(&world.publisher, &[]).await.is_empty());
}

#[tokio::test]
async fn b29_a_topic_that_is_not_there_is_refused_at_once_where_brokers_make_none() {
    let server = tokio::task::spawn_blocking(RocketServer::that_makes_no_topics).await.unwrap();
    let publisher = RocketPublisher::builder(server.name_server()).build().unwrap();
    let messages = [
        OutboundMessage::new("BenchmarkTest", "1", "{}").aggregate("a"),
        OutboundMessage::new("misspelt", "2", "{}").aggregate("a"),
        OutboundMessage::new("BenchmarkTest", "3", "{}").aggregate("a"),
        OutboundMessage::new("misspelt", "4", "{}"),
    ];
    let told = publish(&publisher, &messages).await;
    assert_eq!(kinds(&told), [None, Some(Kind::Refused), Some(Kind::Unsent), Some(Kind::Refused)], "{told:?}");
    assert!(told[3].as_ref().unwrap_err().to_string().contains("make it first"), "{told:?}");
}
