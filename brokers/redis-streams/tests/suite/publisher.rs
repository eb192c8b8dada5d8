//! The publisher: the reported result of each message matches the stream.
use std::time::Duration;

use idempotent_core::Timestamp;
use idempotent_harness::proxy::{Fault, Proxy};
use idempotent_harness::servers::{RedisServer, Value};
use idempotent_mq::{
    DeadLetter, OutboundMessage, Publish, PublishError, PublishErrorKind, Published, Redrive, Settlement, Source,
};
use idempotent_redis_streams::{StartPosition, StreamsDeadLetters, StreamsPublisher, StreamsSource};

use crate::world::{World, one, receive, settle};

use PublishErrorKind::{Refused, Unconfirmed, Unsent};

fn publisher(url: &str) -> StreamsPublisher {
    StreamsPublisher::new(url).unwrap()
}

fn message(id: &str) -> OutboundMessage {
    OutboundMessage::new("orders", id, id.as_bytes())
}

/// Returns a message of an aggregate.
fn of(id: &str, aggregate: &str) -> OutboundMessage {
    message(id).aggregate(aggregate)
}

fn kinds(told: &[Result<Published, PublishError>]) -> Vec<Option<PublishErrorKind>> {
    told.iter().map(|told| told.as_ref().err().map(PublishError::kind)).collect()
}

/// Returns the ids in a stream, in order.
fn ids(world: &World, stream: &str) -> Vec<String> {
    if world.server.command(&["EXISTS", stream]) == Value::Integer(0) {
        return Vec::new();
    }
    let text = |bytes: &Vec<u8>| String::from_utf8(bytes.clone()).unwrap();
    world.entries(stream).iter().map(|entry| text(&entry[3])).collect()
}

#[tokio::test]
async fn a_value_of_the_size_limit_is_sent_dead_lettered_and_redriven_and_one_byte_more_is_refused() {
    // Larger than the smallest limit of the server, below which the publisher asks for no limit.
    const LIMIT: usize = (1 << 20) + 100;
    let world = World::new();
    world.server.command(&["CONFIG", "SET", "proto-max-bulk-len", &LIMIT.to_string()]);
    let mut source = world.source("a").await;
    let publisher = publisher(&world.server.url());
    for length in [LIMIT - 1, LIMIT] {
        let sent = OutboundMessage::new("orders", "m", vec![b'x'; length]);
        assert!(publisher.publish(&[sent]).await[0].is_ok());
        let held = one(&mut source).await;
        settle(&source.settler(), &held, Settlement::DeadLetter(DeadLetter::because("no", Timestamp(1)))).await;
        let redriven = Redrive::new().run(&mut StreamsDeadLetters::new(world.server.url(), "orders").unwrap()).await;
        assert!(redriven.failed.is_none() && redriven.put_back == 1, "{redriven:?}");
        let again = one(&mut source).await;
        assert_eq!(again.0.body.len(), length);
        settle(&source.settler(), &again, Settlement::Ack).await;
    }
    let proxy = Proxy::start(&world.server.address()).await;
    proxy.fail_next_with("XADD", Fault::CutAfterApply);
    let sent = OutboundMessage::new("orders", "m", vec![b'x'; LIMIT]);
    let error = self::publisher(&proxy.url()).publish(&[sent]).await.remove(0).unwrap_err();
    assert_eq!(error.kind(), Unconfirmed, "{error}");
    for large in [
        OutboundMessage::new("orders", "m", vec![b'x'; LIMIT + 1]),
        message("m").header("trace", vec![b'x'; LIMIT + 1]),
    ] {
        let error = publisher.publish(&[large]).await.remove(0).unwrap_err();
        assert!(error.kind() == Refused && error.to_string().contains("`proto-max-bulk-len`"), "{error}");
    }
    assert!(publisher.publish(&[message("next")]).await[0].is_ok());
}

#[tokio::test]
async fn a_source_reads_every_published_field_and_position() {
    let world = World::new();
    let publisher = publisher(&world.server.url());
    let sent = message("m-1").business_key("order-17").header("trace", "a").header("raw", vec![0, 255, b'\n']);
    let sent = sent.header("trace", "b").header("", "unnamed").header("body", "a header").header("id", "not the id");
    let bare = OutboundMessage::new("orders", "m-2", vec![0, 159, 146, 150]);
    let told = publisher.publish(&[sent.clone(), bare]).await;
    let source = StreamsSource::builder(world.server.url(), "orders", "billing").declare(StartPosition::Beginning);
    let mut source = source.id_field("id").business_key_field("key").connect().await.unwrap();
    let mut got = receive(&mut source, 2).await;
    if got.len() < 2 {
        got.extend(receive(&mut source, 1).await);
    }
    for ((delivery, _), told) in got.iter().zip(&told) {
        assert_eq!(told.as_ref().unwrap().position.as_ref(), Some(&delivery.position));
    }
    let (first, second) = (&got[0].0, &got[1].0);
    assert_eq!(
        (first.id.as_deref(), first.business_key.as_deref(), &*first.body),
        (Some("m-1"), Some("order-17"), &b"m-1"[..])
    );
    let headers: Vec<_> = first.headers.iter().map(|(name, value)| (name.to_owned(), value.to_vec())).collect();
    let own = [("id", "m-1"), ("key", "order-17")].map(|(name, value)| (name.to_owned(), value.as_bytes().to_vec()));
    let sent: Vec<_> = sent.headers.iter().map(|(name, value)| (name.to_owned(), value.to_vec())).collect();
    assert_eq!(headers, [&own[..], &sent].concat(), "its own, and those it was given");
    assert_eq!(
        (second.id.as_deref(), second.business_key.as_deref(), &*second.body),
        (Some("m-2"), None, &[0, 159, 146, 150][..])
    );
    let named =
        StreamsPublisher::new(world.server.url()).unwrap().body_field("b").id_field("i").business_key_field("k");
    assert_eq!(kinds(&named.publish(&[OutboundMessage::new("other", "m", "x").business_key("y")]).await), [None]);
    assert_eq!(world.entries("other"), [["b", "x", "i", "m", "k", "y"].map(|text| text.as_bytes().to_vec())]);
}

#[tokio::test]
async fn positions_of_a_stream_grow_and_an_aggregate_keeps_its_order_over_several_streams() {
    let world = World::new();
    let publisher = publisher(&world.server.url());
    let messages: Vec<_> = (0..700)
        .map(|n| {
            let topic = format!("stream-{}", n % 3);
            OutboundMessage::new(topic, n.to_string(), vec![b'x'; if n % 50 == 0 { 300_000 } else { 1 }])
                .aggregate(format!("a{}", n % 2))
                .header("trace", "a")
        })
        .collect();
    let told = publisher.publish(&messages).await;
    let mut places = Vec::new();
    for (told, message) in told.iter().zip(&messages) {
        let position = told.as_ref().unwrap().position.clone().unwrap();
        assert_eq!(*position.source, *message.topic);
        let place = position.offset.unwrap();
        let (millis, sequence) = place.split_once('-').unwrap();
        places.push((
            message.aggregate.clone(),
            message.topic.clone(),
            millis.parse::<u64>().unwrap(),
            sequence.parse::<u64>().unwrap(),
        ));
    }
    for aggregate in ["a0", "a1"] {
        let of_it: Vec<_> = places.iter().filter(|(of, ..)| of.as_deref() == Some(aggregate)).collect();
        assert!(of_it.is_sorted_by_key(|(_, _, millis, _)| millis), "over all streams by time");
        for stream in ["stream-0", "stream-1", "stream-2"] {
            let in_it: Vec<_> = of_it.iter().filter(|(_, of, ..)| of == stream).collect();
            assert!(in_it.is_sorted_by(|one, two| (one.2, one.3) < (two.2, two.3)), "each later than the one before");
        }
    }
    assert_eq!(publisher.publish(&[]).await.len(), 0);
}

#[tokio::test]
async fn a_refused_message_holds_back_only_its_aggregate() {
    let world = World::new();
    world.server.command(&["SET", "text", "x"]);
    let publisher = publisher(&world.server.url());
    let messages = [
        of("a1", "a"),
        OutboundMessage::new("text", "a2", "").aggregate("a"),
        of("a3", "a"),
        of("b1", "b"),
        of("b2", "b").header("idempotent-reason", "mine"),
        of("b3", "b"),
        OutboundMessage::new("text", "alone", ""),
        OutboundMessage::new("", "nowhere", ""),
        message(""),
        message("fine"),
        of("c1", "c"),
        of("c2", "c"),
    ];
    let told = publisher.publish(&messages).await;
    let (none, refused, unsent) = (None, Some(Refused), Some(Unsent));
    let expected = [none, refused, unsent, none, refused, unsent, refused, refused, refused, none, none, none];
    assert_eq!(kinds(&told), expected);
    let mut there = ids(&world, "orders");
    there.sort();
    assert_eq!(there, ["a1", "b1", "c1", "c2", "fine"]);
    let texts: Vec<_> = told.iter().filter_map(|told| told.as_ref().err()).map(ToString::to_string).collect();
    for (text, words) in texts.iter().zip([
        "not a stream",
        "earlier message",
        "reserved for dead letters",
        "earlier message",
        "not a stream",
        "topic is empty",
        "id is empty",
    ]) {
        assert!(text.contains(words), "{text}");
    }
    // Neither the other messages of the same request nor those of later requests are sent.
    let mut long: Vec<_> = (0..250).map(|n| of(&format!("l{n}"), "long")).collect();
    long[7].topic = "text".to_owned();
    let kinds_of_long = kinds(&publisher.publish(&long).await);
    assert_eq!((&kinds_of_long[..7], kinds_of_long[7]), (&[none; 7][..], refused));
    assert!(kinds_of_long[8..].iter().all(|kind| *kind == unsent), "{kinds_of_long:?}");
    assert_eq!(ids(&world, "orders").len(), 5 + 7);
    let named = |body, id, key| {
        StreamsPublisher::new(world.server.url()).unwrap().body_field(body).id_field(id).business_key_field(key)
    };
    for one_name in [named("a", "a", "b"), named("a", "b", "a"), named("b", "a", "a")] {
        let refused = one_name.publish(&[message("x")]).await.remove(0).unwrap_err();
        assert!(refused.kind() == Refused && refused.to_string().contains("three different fields"), "{refused}");
    }
    assert!(StreamsPublisher::new("postgres://x").unwrap_err().to_string().contains("redis://"));
}

#[tokio::test]
async fn a_stream_that_must_exist_is_not_created() {
    let world = World::new();
    let publisher = publisher(&world.server.url()).existing();
    let all = [message("alone"), of("a1", "a"), of("a2", "a")];
    let told = publisher.publish(&all).await;
    assert_eq!(kinds(&told), [Some(Refused), Some(Refused), Some(Unsent)]);
    for refused in &told[..2] {
        assert!(refused.as_ref().unwrap_err().to_string().contains("stream `orders` does not exist; create it"));
    }
    world.server.command(&["XGROUP", "CREATE", "orders", "billing", "$", "MKSTREAM"]);
    assert_eq!(kinds(&publisher.publish(&all).await), [None, None, None]);
}

#[tokio::test]
async fn a_lost_reply_leaves_a_message_unconfirmed_and_it_can_be_resent_with_its_id() {
    for (fault, there) in [
        (Fault::CutBeforeSend, 0),
        (Fault::CutAfterApply, 1),
        (Fault::CutMidReply, 1),
        (Fault::HalfOpen, 0),
        (Fault::HalfOpenAfterApply, 1),
    ] {
        let world = World::new();
        let proxy = Proxy::start(&world.server.address()).await;
        let publisher = publisher(&proxy.url());
        assert_eq!(kinds(&publisher.publish(&[message("before"), of("b1", "b"), of("b2", "b")]).await), [None; 3]);
        for command in ["XADD\r\n", "EVALSHA\r\n"] {
            world.server.command(&["DEL", "orders"]);
            proxy.fail_next_with(command, fault);
            let (messages, expected) = match command {
                "XADD\r\n" => (vec![message("m")], vec![Some(Unconfirmed)]),
                _ => (vec![of("m", "a"), of("n", "a")], vec![Some(Unconfirmed), Some(Unsent)]),
            };
            assert_eq!(kinds(&publisher.publish(&messages).await), expected, "{command} {fault:?}");
            assert_eq!(ids(&world, "orders").len(), there * messages.len(), "{command} {fault:?}");
            // The connection has been replaced.
            assert!(kinds(&publisher.publish(&messages).await).iter().all(Option::is_none), "{command} {fault:?}");
            assert_eq!(ids(&world, "orders").len(), (there + 1) * messages.len());
        }
        assert_eq!(proxy.met(), 2);
    }
}

#[tokio::test]
async fn messages_are_unsent_without_a_server_and_sent_once_it_is_back() {
    let world = World::on(RedisServer::builder().aof().arg("--appendfsync").arg("always").start());
    let publisher = publisher(&world.server.url());
    let many: Vec<_> = (0..50).map(|n| message(&n.to_string())).collect();
    assert!(kinds(&publisher.publish(&many[..1]).await).iter().all(Option::is_none));
    world.server.kill();
    // With a connection that broke unnoticed, and without any connection.
    for _ in 0..2 {
        let told = publisher.publish(&many).await;
        assert!(kinds(&told).iter().all(|kind| *kind == Some(Unsent)), "{told:?}");
    }
    world.server.restart();
    assert!(kinds(&publisher.publish(&many).await).iter().all(Option::is_none));
    assert_eq!(ids(&world, "orders").len(), 51);
    // A connection that the server has closed does not lead to an ambiguous result either.
    world.server.command(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
    assert_eq!(kinds(&publisher.publish(&[message("after")]).await), [None]);
    // The server is paused, and 50 messages do not wait one after the other.
    world.server.pause();
    let told = tokio::time::timeout(Duration::from_secs(40), publisher.publish(&many)).await.unwrap();
    assert!(kinds(&told).iter().all(|kind| *kind == Some(Unsent)), "{told:?}");
    world.server.resume();
}

#[tokio::test]
async fn a_temporary_refusal_leaves_messages_unsent() {
    let world = World::new();
    let publisher = publisher(&world.server.url());
    let all = [message("m"), of("a1", "a"), of("a2", "a")];
    let unsent = [Some(Unsent); 3];
    // Memory is full.
    world.server.command(&["CONFIG", "SET", "maxmemory", "1"]);
    assert_eq!(kinds(&publisher.publish(&all).await), unsent);
    world.server.command(&["CONFIG", "SET", "maxmemory", "0"]);
    // Too few replicas.
    world.server.command(&["CONFIG", "SET", "min-replicas-to-write", "1"]);
    assert_eq!(kinds(&publisher.publish(&all).await), unsent);
    world.server.command(&["CONFIG", "SET", "min-replicas-to-write", "0"]);
    // A replica.
    world.server.command(&["REPLICAOF", "127.0.0.1", "1"]);
    assert_eq!(kinds(&publisher.publish(&all).await), unsent);
    assert_eq!(world.server.command(&["XLEN", "orders"]), Value::Integer(0));
    world.server.command(&["REPLICAOF", "NO", "ONE"]);
    assert_eq!(kinds(&publisher.publish(&all).await), [None; 3]);
    assert_eq!(ids(&world, "orders").len(), 3);
}

#[tokio::test]
async fn the_documented_rule_is_sufficient_for_a_publisher_and_less_is_refused_with_a_remedy() {
    let docs = include_str!("../../src/publisher.rs");
    let rule = docs.split("/// A user needs `").nth(1).unwrap().split('`').next().unwrap();
    let world = World::new();
    let rule: Vec<_> = rule.split_whitespace().collect();
    assert_eq!(
        world.server.command(&[&["ACL", "SETUSER", "sender", "on", ">secret"], &rule[..]].concat()).text(),
        "OK"
    );
    let url = format!("redis://sender:secret@{}", world.server.address());
    let all = [message("m"), of("a1", "a"), of("a2", "a")];
    assert_eq!(kinds(&publisher(&url).publish(&all).await), [None; 3]);
    assert_eq!(world.server.command(&["ACL", "LOG"]), Value::Array(Vec::new()));
    world.server.command(&["ACL", "SETUSER", "sender", "-xadd"]);
    let told = publisher(&url).publish(&all).await;
    assert_eq!(kinds(&told), [Some(Refused), Some(Refused), Some(Unsent)]);
    assert!(told[0].as_ref().unwrap_err().to_string().contains("list the commands"), "{told:?}");
    let wrong = publisher(&url.replace("secret", "other"));
    let told = wrong.publish(&all[..1]).await;
    assert_eq!(kinds(&told), [Some(Unsent)], "the password may be set right");
    assert!(!format!("{told:?} {wrong:?}").contains("other"));
}
