//! Messages without a key or a value, and copies that equal their messages.
use idempotent_core::Timestamp;
use idempotent_kafka::{KafkaDeadLetters, KafkaPublisher, KafkaSource};
use idempotent_mq::{
    DeadLetter, DeadLetters, OutboundMessage, Publish, Redrive, Settlement, Source, SourceErrorKind, StoredLetter,
};
use rdkafka::Offset;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::message::{Header, Headers, Message, OwnedHeaders, OwnedMessage};
use rdkafka::topic_partition_list::TopicPartitionList;

use crate::world::{LIMIT, World, config, ms, one, retry, settle, simulated};

/// Returns the record at an offset of the only partition of a topic.
pub(crate) fn record(world: &World, topic: &str, offset: i64) -> OwnedMessage {
    let client: BaseConsumer = config(&world.server).set("group.id", "reader").create().unwrap();
    let mut list = TopicPartitionList::new();
    list.add_partition_offset(topic, 0, Offset::Offset(offset)).unwrap();
    client.assign(&list).unwrap();
    client.poll(LIMIT).unwrap().unwrap().detach()
}

/// A key and a value.
type Record = (Option<&'static [u8]>, Option<&'static [u8]>);

pub(crate) fn because(reason: &'static str) -> Settlement {
    Settlement::DeadLetter(DeadLetter::because(reason, Timestamp(9)))
}

#[tokio::test]
async fn a_message_without_key_or_value_is_delivered_dead_lettered_and_put_back_as_it_was() {
    let world = World::new(1).await;
    let mut source = world.builder().retry_topic("orders-billing-retry").connect().await.unwrap();
    let headers = || {
        let headers = OwnedHeaders::new().insert(Header { key: "null", value: None::<&[u8]> });
        headers.insert(Header { key: "bytes", value: Some(&[0u8, 255]) })
    };
    // tansu changes an empty value into null.
    let records: [Record; 3] = [(None, None), (Some(b"k"), None), (Some(b"\xff"), Some(b"v"))];
    for (key, value) in records {
        world.send_to(0, key, value, headers()).await;
    }
    for _ in 0..records.len() * 2 {
        let held = one(&mut source).await;
        let is_sent = records.iter().any(|(key, value)| {
            let text = key.and_then(|key| std::str::from_utf8(key).ok());
            let is_tombstone = held.0.headers.first("idempotent-tombstone").is_some();
            held.0.body == value.unwrap_or_default()
                && is_tombstone == value.is_none()
                && held.0.business_key.as_deref() == text
        });
        assert!(is_sent, "{:?}", held.0);
        let how = if held.0.attempt == Some(1) { retry(ms(1)) } else { because("no stock") };
        settle(&source, &held, how).await;
    }
    let redriven = Redrive::new().run(&mut KafkaDeadLetters::new(world.url(), "orders")).await;
    assert_eq!(redriven.put_back, 3, "{redriven:?}");
    for (offset, (key, value)) in (3..).zip(records) {
        let back = record(&world, "orders", offset);
        assert_eq!((back.key(), back.payload()), (key, value));
        let back = back.headers().unwrap();
        assert_eq!(back.get(0), Header { key: "null", value: None });
        assert_eq!(back.get(1), Header { key: "bytes", value: Some(&[0u8, 255][..]) });
        let held = one(&mut source).await;
        assert_eq!((held.0.deaths, held.0.attempt), (1, Some(1)));
        settle(&source, &held, Settlement::Ack).await;
    }
    source.close().await;
}

#[tokio::test]
async fn an_empty_value_is_no_tombstone() {
    let (_cluster, url) = simulated();
    let mut source = KafkaSource::connect(&*url, "orders", "billing").await.unwrap();
    let publisher = KafkaPublisher::new(&*url);
    let sent = publisher.publish(&[OutboundMessage::new("orders", "m-1", "")]).await;
    sent.into_iter().for_each(|sent| drop(sent.unwrap()));
    let held = one(&mut source).await;
    assert_eq!((held.0.id.as_deref(), held.0.body.len(), held.0.headers.len()), (Some("m-1"), 0, 0));
    settle(&source, &held, Settlement::Ack).await;
    source.close().await;
}

#[tokio::test]
async fn a_due_time_of_another_producer_does_not_stop_a_partition() {
    let world = World::new(1).await;
    let far = i64::MAX.to_string();
    let headers = OwnedHeaders::new().insert(Header { key: "idempotent-due", value: Some(&far) });
    world.send_to(0, None, Some(b"now"), headers).await;
    let mut source = world.builder().retry_topic("orders-billing-retry").connect().await.unwrap();
    assert_eq!(one(&mut source).await.0.body, b"now");
}

#[tokio::test]
async fn the_prefix_is_committed_over_gaps_in_the_offsets() {
    let world = World::new(1).await;
    let mut source = world.source().await;
    let mut transactional = config(&world.server);
    transactional.set("transactional.id", "writer").set("linger.ms", "0");
    let producer: rdkafka::producer::FutureProducer = transactional.create().unwrap();
    rdkafka::producer::Producer::init_transactions(&producer, LIMIT).unwrap();
    for body in ["0", "1", "2"] {
        rdkafka::producer::Producer::begin_transaction(&producer).unwrap();
        let record = rdkafka::producer::FutureRecord::<[u8], [u8]>::to("orders").payload(body.as_bytes());
        producer.send(record, LIMIT).await.map_err(|(error, _)| error).unwrap();
        rdkafka::producer::Producer::commit_transaction(&producer, LIMIT).unwrap();
    }
    let mut held = Vec::new();
    for _ in 0..3 {
        held.push(one(&mut source).await);
    }
    let offsets: Vec<i64> =
        held.iter().map(|(delivery, _)| delivery.position.offset.as_deref().unwrap().parse().unwrap()).collect();
    assert_eq!(offsets, [0, 2, 4], "the mark of a transaction has an offset");
    for held in held.iter().rev() {
        settle(&source, held, Settlement::Ack).await;
    }
    world.until_committed(0, 5).await;
}

#[tokio::test]
async fn a_message_is_one_dead_letter_although_its_commit_was_lost() {
    let world = World::new(1).await;
    world.send("one").await;
    // The offset of the first delivery is not committed, as after a crash.
    for _ in 0..2 {
        let mut source = world.source().await;
        let held = one(&mut source).await;
        settle(&source, &held, because("no stock")).await;
        source.close().await;
        let client: BaseConsumer = config(&world.server).set("group.id", crate::world::GROUP).create().unwrap();
        let mut list = TopicPartitionList::new();
        list.add_partition_offset("orders", 0, Offset::Offset(0)).unwrap();
        client.commit(&list, rdkafka::consumer::CommitMode::Sync).unwrap();
    }
    let mut letters = KafkaDeadLetters::new(world.url(), "orders");
    assert_eq!(letters.count().await.unwrap(), 1);
    let StoredLetter { delivery, letter, .. } = letters.next().await.unwrap().unwrap();
    assert_eq!((delivery.body, letter.unwrap().reason), (b"one".to_vec(), "no stock".into()));
    assert!(letters.next().await.unwrap().is_none());
}

#[tokio::test]
async fn a_list_begins_without_a_count_and_an_empty_topic_is_listed_repeatedly() {
    let world = World::new(1).await;
    world.source().await;
    let letters = || KafkaDeadLetters::new(world.url(), "orders");
    // An end of the client that races with a second assignment aborts the process.
    for _ in 0..20 {
        let mut letters = letters();
        assert!(letters.next().await.unwrap().is_none());
        assert_eq!(letters.count().await.unwrap(), 0);
        letters.close().await;
    }
    let record = rdkafka::producer::FutureRecord::<[u8], [u8]>::to("orders-dead").payload(b"foreign");
    world.producer.send(record, LIMIT).await.map_err(|(error, _)| error).unwrap();
    let mut letters = letters();
    for _ in 0..2 {
        assert_eq!(letters.next().await.unwrap().unwrap().delivery.body, b"foreign");
        assert!(letters.next().await.unwrap().is_none());
        letters.close().await;
    }
}

#[tokio::test]
async fn a_letter_of_another_program_is_listed_and_stays_until_it_is_removed() {
    let world = World::new(1).await;
    world.source().await;
    for key in [None, Some(&b"k"[..])] {
        let mut record = rdkafka::producer::FutureRecord::<[u8], [u8]>::to("orders-dead").payload(b"foreign");
        record.key = key;
        world.producer.send(record, LIMIT).await.map_err(|(error, _)| error).unwrap();
    }
    let mut letters = KafkaDeadLetters::new(world.url(), "orders");
    assert!(letters.put_back().await.unwrap_err().to_string().contains("call `next` first"));
    assert_eq!(letters.count().await.unwrap(), 2);
    for (remedy, reason) in
        [("kafka-delete-records", "without a record key"), ("", "name a topic by `putting_back_to`")]
    {
        let StoredLetter { delivery, letter, .. } = letters.next().await.unwrap().unwrap();
        assert_eq!((delivery.body, letter), (b"foreign".to_vec(), None));
        let error = letters.put_back().await.unwrap_err();
        assert!(error.kind() == SourceErrorKind::Refused && error.to_string().contains(reason), "{error}");
        match letters.discard().await {
            Ok(is_removed) => assert!(is_removed && remedy.is_empty()),
            Err(error) => assert!(!remedy.is_empty() && error.to_string().contains(remedy), "{error}"),
        }
    }
    assert_eq!(letters.count().await.unwrap(), 1);
    let missing = KafkaDeadLetters::new(world.url(), "payments").count().await.unwrap_err();
    assert!(missing.to_string().contains("`payments-dead` does not exist"), "{missing}");
}
