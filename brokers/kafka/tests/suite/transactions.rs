//! Transactions, which commit offsets together with the messages of handlers.
use idempotent_core::Timestamp;
use idempotent_kafka::KafkaSource;
use idempotent_mq::{
    DeadLetter, Delivery, Message, Messages, OutboundMessage, PublishErrorKind, Settlement, Source, SourceError,
    SourceErrorKind,
};
use rdkafka::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaError;
use rdkafka::message::Message as _;
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};

use crate::world::{LIMIT, World, config, ms, one, retry, settle};

pub(crate) const RECEIPTS: &str = "receipts";

/// Returns the receipt of a delivery, which has its body.
pub(crate) fn receipt(delivery: &Delivery) -> OutboundMessage {
    OutboundMessage::new(RECEIPTS, "r-1", delivery.body.clone()).business_key("order-17")
}

/// Creates a broker with the topics of orders and receipts.
pub(crate) async fn world() -> World {
    let world = World::new(1).await;
    world.create(RECEIPTS, 1).await;
    world
}

/// Returns the bodies of all receipts, of which there are at least `least`.
pub(crate) fn receipts(mut config: ClientConfig, least: usize) -> Vec<String> {
    config.set("group.id", "auditors").set("enable.partition.eof", "true");
    let client: BaseConsumer = config.create().unwrap();
    let mut list = TopicPartitionList::new();
    list.add_partition_offset(RECEIPTS, 0, Offset::Beginning).unwrap();
    client.assign(&list).unwrap();
    let mut bodies = Vec::new();
    loop {
        match client.poll(LIMIT).unwrap() {
            Ok(message) => bodies.push(String::from_utf8(message.payload().unwrap().to_vec()).unwrap()),
            Err(KafkaError::PartitionEOF(_)) if bodies.len() >= least => return bodies,
            Err(KafkaError::PartitionEOF(_)) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

/// Receives until there is an error.
pub(crate) async fn failure(source: &mut KafkaSource) -> SourceError {
    let failing = async {
        loop {
            if let Err(error) = source.receive(1).await {
                return error;
            }
        }
    };
    tokio::time::timeout(LIMIT, failing).await.unwrap()
}

#[tokio::test]
async fn each_handled_message_has_one_receipt_in_the_order_of_the_partition() {
    let world = world().await;
    let source = world.builder().transactions("billing-0").connect().await.unwrap();
    let output = source.output();
    let handling = Messages::raw().unprotected(move |message: Message<()>| {
        let added = output.add(&message.delivery, &receipt(&message.delivery));
        async move { added.map_err(|error| error.to_string()) }
    });
    let running = world.run(source, handling);
    for number in 0..5 {
        world.send(&number.to_string()).await;
    }
    world.until_committed(0, 5).await;
    running.ended().await.unwrap();
    assert_eq!(receipts(config(&world.server), 5), ["0", "1", "2", "3", "4"]);
}

#[tokio::test]
async fn the_last_transaction_is_committed_before_a_closed_source_leaves() {
    let world = world().await;
    let mut source = world.builder().transactions("billing-0").connect().await.unwrap();
    world.send("only").await;
    let held = one(&mut source).await;
    source.output().add(&held.0, &receipt(&held.0)).unwrap();
    source.close().await;
    settle(&source, &held, Settlement::Ack).await;
    assert_eq!(world.committed(0), Some(1));
    assert_eq!(receipts(config(&world.server), 1), ["only"]);
}

#[tokio::test]
async fn messages_of_a_delivery_that_is_not_acknowledged_are_discarded() {
    let world = world().await;
    let mut source = world.builder().transactions("billing-0").connect().await.unwrap();
    let output = source.output();
    for body in ["retried", "dead"] {
        world.send(body).await;
    }
    let first = one(&mut source).await;
    output.add(&first.0, &receipt(&first.0)).unwrap();
    settle(&source, &first, retry(ms(1))).await;
    let gone = output.add(&first.0, &receipt(&first.0)).unwrap_err();
    assert!(gone.kind() == PublishErrorKind::Unsent && gone.to_string().contains("another member"), "{gone}");
    let again = one(&mut source).await;
    assert_eq!((&*again.0.body, again.0.attempt), (&b"retried"[..], Some(2)));
    output.add(&again.0, &receipt(&again.0)).unwrap();
    let dead = one(&mut source).await;
    output.add(&dead.0, &receipt(&dead.0)).unwrap();
    settle(&source, &dead, Settlement::DeadLetter(DeadLetter::because("never", Timestamp(1)))).await;
    settle(&source, &again, Settlement::Ack).await;
    world.until_committed(0, 2).await;
    assert_eq!(receipts(config(&world.server), 1), ["retried"]);
}

#[tokio::test]
async fn a_source_without_transactions_refuses_messages_and_a_retry_topic_excludes_them() {
    let world = world().await;
    let mut source = world.source().await;
    world.send("only").await;
    let held = one(&mut source).await;
    let error = source.output().add(&held.0, &receipt(&held.0)).unwrap_err();
    assert!(error.kind() == PublishErrorKind::Refused && error.to_string().contains("`transactions`"), "{error}");
    let both = world.builder().transactions("billing-0").retry_topic("again").connect().await.map(drop).unwrap_err();
    assert!(both.kind() == SourceErrorKind::Fatal && both.to_string().contains("exclude each other"), "{both}");
    let empty = world.builder().transactions("").connect().await.map(drop).unwrap_err();
    assert!(empty.to_string().contains("the id of `transactions` is empty"), "{empty}");
}
