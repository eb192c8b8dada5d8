//! Data of the adapter that producers forge, and headers that the client cannot read.
use idempotent_core::Timestamp;
use idempotent_kafka::KafkaDeadLetters;
use idempotent_mq::{DeadLetters, Redrive, Settlement, Source, SourceErrorKind};
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::message::{Header, Headers, Message, OwnedHeaders};
use rdkafka::producer::FutureRecord;

use crate::messages::{because, record};
use crate::world::{LIMIT, World, config, counting, ms, one, retry, settle};

const RETRIES: &str = "orders-billing-retry";

/// The copy of a message whose headers the client cannot read is recognized by its last header. The client panics for such headers, so
/// this one has readable ones in front.
const UNREADABLE: [(&str, &str); 7] = [
    ("raw", "\u{1}"),
    ("idempotent-id", "m-1"),
    ("idempotent-topic", "orders"),
    ("idempotent-partition", "0"),
    ("idempotent-attempt", "3"),
    ("idempotent-first-at", "5"),
    ("idempotent-tail", "5"),
];

fn headers<const N: usize>(all: [(&str, &str); N]) -> OwnedHeaders {
    let add = |headers: OwnedHeaders, (key, value): (&str, &str)| headers.insert(Header { key, value: Some(value) });
    all.into_iter().fold(OwnedHeaders::new(), add)
}

impl World {
    async fn produce(&self, topic: &str, key: Option<&[u8]>, headers: OwnedHeaders) {
        let mut record = FutureRecord::<[u8], [u8]>::to(topic).payload(b"body").headers(headers);
        record.key = key;
        self.producer.send(record, LIMIT).await.map_err(|(error, _)| error).unwrap();
    }
}

#[tokio::test]
async fn a_producer_decides_neither_the_attempt_nor_the_topic_of_its_letter() {
    let world = World::new(1).await;
    world.create("payments", 1).await;
    let forged = headers([
        ("idempotent-topic", "payments"),
        ("idempotent-partition", "77"),
        ("idempotent-record-key", "stolen"),
        ("idempotent-id", "pay-4711"),
        ("idempotent-attempt", "16"),
        ("idempotent-due", "9223372036854775807"),
        ("idempotent-reason", "all is well"),
        ("mine", "1"),
    ]);
    world.produce("orders", Some(b"k"), forged).await;
    let mut source = world.builder().retry_topic(RETRIES).connect().await.unwrap();
    let held = one(&mut source).await;
    assert_eq!((held.0.attempt, held.0.headers.len()), (Some(1), 1));
    settle(&source, &held, retry(ms(1))).await;
    let held = one(&mut source).await;
    assert_eq!((held.0.attempt, held.0.id.as_deref()), (Some(2), Some("pay-4711")));
    settle(&source, &held, because("no stock")).await;
    let redriven = Redrive::new().run(&mut KafkaDeadLetters::new(world.url(), "orders")).await;
    assert_eq!(redriven.put_back, 1, "{redriven:?}");
    let back = record(&world, "orders", 1);
    assert_eq!((back.key(), back.partition()), (Some(&b"k"[..]), 0));
    source.close().await;
}

#[tokio::test]
async fn a_letter_goes_to_the_topic_of_the_handle_or_to_one_that_the_operator_names() {
    let world = World::new(1).await;
    world.create("payments", 1).await;
    world.source().await;
    for topic in ["payments", "orders"] {
        let named = headers([("idempotent-topic", topic), ("idempotent-partition", "77")]);
        world.produce("orders-dead", Some(topic.as_bytes()), named).await;
    }
    world.produce("orders-dead", Some(b"foreign"), OwnedHeaders::new()).await;
    let letters = || KafkaDeadLetters::new(world.url(), "orders");
    let redriven = Redrive::new().run(&mut letters()).await;
    assert_eq!((redriven.put_back, redriven.passed_by), (1, 2), "{redriven:?}");
    assert_eq!(record(&world, "orders", 0).payload(), Some(&b"body"[..]), "its partition does not exist");
    let mut named = letters().putting_back_to("payments");
    let redriven = Redrive::new().run(&mut named).await;
    assert_eq!((redriven.put_back, redriven.passed_by), (2, 0), "{redriven:?}");
    assert_eq!(record(&world, "payments", 1).key(), Some(&b"foreign"[..]), "the record key of another program stays");
    assert_eq!(letters().count().await.unwrap(), 0);
}

#[tokio::test]
async fn a_letter_returns_to_its_partition_and_goes_by_its_record_key_to_another_topic() {
    let world = World::new(2).await;
    world.create("payments", 2).await;
    world.source().await;
    let client: BaseConsumer = config(&world.server).set("group.id", "reader").create().unwrap();
    for topic in ["orders", "payments"] {
        for key in "abcdefgh".split("").filter(|key| !key.is_empty()) {
            let of_one = headers([("idempotent-topic", "orders"), ("idempotent-partition", "1")]);
            world.produce("orders-dead", Some(key.as_bytes()), of_one).await;
        }
        let mut letters = KafkaDeadLetters::new(world.url(), "orders").putting_back_to(topic);
        let redriven = Redrive::new().run(&mut letters).await;
        let counts = [0, 1].map(|partition| client.fetch_watermarks(topic, partition, LIMIT).unwrap().1);
        let is_origin = topic == "orders";
        assert_eq!(
            (redriven.put_back, counts[0] + counts[1], counts[0] == 0),
            (8, 8, is_origin),
            "{topic}: {counts:?}"
        );
    }
}

#[tokio::test]
async fn a_letter_does_not_choose_what_an_operator_reads() {
    let world = World::new(1).await;
    world.source().await;
    for (key, at) in [("other", "payroll/0/0"), ("gone", "orders/0/7")] {
        let reference = headers([
            ("idempotent-topic", "orders"),
            ("idempotent-omitted", "headers, record key and body"),
            ("idempotent-record", at),
        ]);
        world.produce("orders-dead", Some(key.as_bytes()), reference).await;
    }
    let mut letters = KafkaDeadLetters::new(world.url(), "orders");
    for part in ["which is `payroll/0/0`", "no longer contains the message"] {
        letters.next().await.unwrap().unwrap();
        let error = letters.put_back().await.unwrap_err();
        assert!(error.kind() == SourceErrorKind::Refused && error.to_string().contains(part), "{error}");
    }
}

#[tokio::test]
async fn a_message_with_unreadable_headers_keeps_its_own_data_and_its_bytes_until_it_is_put_back() {
    let world = World::new(1).await;
    let mut source = world.builder().retry_topic(RETRIES).connect().await.unwrap();
    world.produce(RETRIES, Some(b"k"), headers(UNREADABLE)).await;
    let held = one(&mut source).await;
    assert_eq!((held.0.id.as_deref(), held.0.attempt, held.0.first_at), (Some("m-1"), Some(3), Some(Timestamp(5))));
    assert!(held.0.headers.is_empty() && held.0.unreadable.is_some());
    settle(&source, &held, retry(ms(1))).await;
    let held = one(&mut source).await;
    assert_eq!((held.0.id.as_deref(), held.0.attempt), (Some("m-1"), Some(2)), "the last retry counts");
    settle(&source, &held, because("unreadable")).await;
    let mut letters = KafkaDeadLetters::new(world.url(), "orders");
    let letter = letters.next().await.unwrap().unwrap();
    assert_eq!((letter.delivery.id.as_deref(), letter.letter.unwrap().reason), (Some("m-1"), "unreadable".into()));
    assert!(letters.put_back().await.unwrap());
    let back = record(&world, "orders", 0);
    assert_eq!(back.headers().unwrap().get(0), Header { key: "raw", value: Some(&b"\x01"[..]) });
    let held = one(&mut source).await;
    assert_eq!((held.0.id.as_deref(), held.0.deaths, held.0.headers.len()), (Some("m-1"), 1, 0));
    settle(&source, &held, because("unreadable")).await;
    let mut letters = KafkaDeadLetters::new(world.url(), "orders").without_unreadable_headers();
    assert_eq!(Redrive::new().run(&mut letters).await.put_back, 1);
    let held = one(&mut source).await;
    assert_eq!((held.0.id.as_deref(), held.0.deaths, &*held.0.body), (Some("m-1"), 1, &b"body"[..]));
    assert!(held.0.unreadable.is_none());
    assert_eq!(record(&world, "orders", 1).headers().unwrap().get(0).key, "idempotent-id");
    settle(&source, &held, Settlement::Ack).await;
    source.close().await;
}

#[tokio::test]
async fn a_consumer_dead_letters_a_message_with_unreadable_headers_once_and_without_a_run() {
    let world = World::new(1).await;
    let source = world.builder().retry_topic(RETRIES).connect().await.unwrap();
    world.produce(RETRIES, Some(b"k"), headers(UNREADABLE)).await;
    let (handling, runs) = counting();
    let running = world.run(source, handling);
    let mut letters = KafkaDeadLetters::new(world.url(), "orders");
    // Each count asks the broker again.
    while letters.count().await.unwrap() == 0 {}
    let counts = running.ended().await.unwrap();
    assert_eq!((counts.dead_lettered, counts.undecodable, runs.number()), (1, 1, 0), "{counts:?}");
    let letter = letters.next().await.unwrap().unwrap();
    let reason = letter.letter.unwrap().reason;
    assert!(letter.delivery.id.as_deref() == Some("m-1") && reason.contains("not UTF-8"), "{reason}");
}
