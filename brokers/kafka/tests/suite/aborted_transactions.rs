//! Transactions that are rejected, fenced or interrupted, and the messages that readers see afterwards.
use std::time::Duration;

use idempotent_harness::proxy::Fault;
use idempotent_kafka::{KafkaPublisher, KafkaSource};
use idempotent_mq::{OutboundMessage, Publish, Settlement, Source, SourceErrorKind};
use rdkafka::ClientConfig;
use rdkafka::message::OwnedHeaders;
use rdkafka::types::{RDKafkaApiKey, RDKafkaRespErr};

use crate::transactions::{RECEIPTS, failure, receipt, receipts, world};
use crate::world::{GROUP, Held, LIMIT, Simulated, World, config, one, receive, settle, simulated};

/// A simulated cluster, which rejects requests if a test sets that, and a source that holds one delivery.
struct Rejecting {
    cluster: Simulated,
    source: KafkaSource,
    held: Held,
}

impl Rejecting {
    async fn new() -> Self {
        let (cluster, url) = simulated();
        cluster.create_topic(RECEIPTS, 1, 1).unwrap();
        let builder = KafkaSource::builder(&*url, "orders", GROUP).transactions("billing-0");
        let mut source = builder.connect().await.unwrap();
        let publisher = KafkaPublisher::new(&*url);
        publisher.publish(&[OutboundMessage::new("orders", "m-1", "body")]).await.pop().unwrap().unwrap();
        let held = one(&mut source).await;
        source.output().add(&held.0, &receipt(&held.0)).unwrap();
        Self { cluster, source, held }
    }

    /// Acknowledges the delivery, rejects the next request of this kind, and verifies the error of the transaction.
    async fn reject(&mut self, request: RDKafkaApiKey, error: RDKafkaRespErr) {
        self.cluster.request_errors(request, &[error]);
        settle(&self.source, &self.held, Settlement::Ack).await;
        let error = failure(&mut self.source).await;
        assert!(error.kind() == SourceErrorKind::Transient && error.to_string().contains("it is aborted"), "{error}");
    }
}

#[tokio::test]
async fn a_transaction_that_the_broker_rejects_is_aborted_and_reported() {
    let mut rejecting = Rejecting::new().await;
    rejecting.reject(RDKafkaApiKey::TxnOffsetCommit, RDKafkaRespErr::RD_KAFKA_RESP_ERR_ILLEGAL_GENERATION).await;
}

#[tokio::test]
async fn a_transaction_whose_message_is_rejected_is_repeated_and_its_message_is_there_once() {
    let mut rejecting = Rejecting::new().await;
    // The cluster does not hide messages of an aborted transaction, so it must reject them.
    rejecting.reject(RDKafkaApiKey::Produce, RDKafkaRespErr::RD_KAFKA_RESP_ERR_RECORD_LIST_TOO_LARGE).await;
    let mut reader = ClientConfig::new();
    reader.set("bootstrap.servers", rejecting.cluster.bootstrap_servers());
    // The member repeats the transaction until it is committed. The attempt before it leaves is the last one.
    assert_eq!(receipts(reader.clone(), 1), ["body"]);
    rejecting.source.close().await;
    assert_eq!(receipts(reader, 1), ["body"]);
}

#[tokio::test]
async fn a_rejected_transaction_is_repeated_while_another_handler_runs_and_the_source_is_closed() {
    /// A member without an event wakes up after 60 s.
    const WITHOUT_AN_EVENT: Duration = Duration::from_secs(40);
    let Rejecting { cluster, mut source, held } = Rejecting::new().await;
    let publisher = KafkaPublisher::new(format!("kafka://{}", cluster.bootstrap_servers()));
    publisher.publish(&[OutboundMessage::new("orders", "m-2", "body")]).await.pop().unwrap().unwrap();
    let running = one(&mut source).await;
    source.close().await;
    let error = RDKafkaRespErr::RD_KAFKA_RESP_ERR_RECORD_LIST_TOO_LARGE;
    cluster.request_errors(RDKafkaApiKey::Produce, &[error]);
    settle(&source, &held, Settlement::Ack).await;
    let mut reader = ClientConfig::new();
    reader.set("bootstrap.servers", cluster.bootstrap_servers());
    let committed = tokio::task::spawn_blocking(|| receipts(reader, 1));
    assert_eq!(tokio::time::timeout(WITHOUT_AN_EVENT, committed).await.unwrap().unwrap(), ["body"]);
    settle(&source, &running, Settlement::Ack).await;
}

#[tokio::test]
async fn a_connection_that_is_cut_before_the_commit_leaves_one_receipt_of_each_message() {
    const END_OF_TRANSACTION: [u8; 2] = [0, 26];
    let world = world().await;
    let mut source = world.builder().transactions("billing-0").connect().await.unwrap();
    // A request starts with its length and its kind.
    let is_end = |request: &[u8]| request.get(4..6).is_some_and(|kind| kind == END_OF_TRANSACTION);
    world.between.fail_next_if(is_end, Fault::CutBeforeSend);
    for body in ["0", "1"] {
        world.send(body).await;
        let held = one(&mut source).await;
        source.output().add(&held.0, &receipt(&held.0)).unwrap();
        settle(&source, &held, Settlement::Ack).await;
    }
    world.until_committed(0, 2).await;
    assert_eq!(world.between.met(), 1, "one commit was cut");
    assert_eq!(receipts(config(&world.server), 2), ["0", "1"]);
}

#[tokio::test]
async fn a_process_whose_id_another_one_has_taken_over_commits_nothing() {
    let world = world().await;
    let mut old = world.builder().transactions("billing-0").connect().await.unwrap();
    world.send("only").await;
    let held = one(&mut old).await;
    old.output().add(&held.0, &receipt(&held.0)).unwrap();
    // In another group, so that the partition stays with the old process.
    let new = KafkaSource::builder(world.url(), "orders", "other").declare(1).transactions("billing-0");
    let mut new = new.connect().await.unwrap();
    settle(&old, &held, Settlement::Ack).await;
    assert_fenced(&mut old).await;
    assert_eq!(world.committed(0), None);
    let held = one(&mut new).await;
    new.output().add(&held.0, &OutboundMessage::new(RECEIPTS, "r-2", "new")).unwrap();
    new.close().await;
    settle(&new, &held, Settlement::Ack).await;
    assert_eq!(receipts(config(&world.server), 1), ["new"]);
}

#[tokio::test]
async fn a_message_of_a_fenced_process_is_delivered_to_its_successor_and_has_one_receipt() {
    let world = world().await;
    let member = || world.builder().transactions("billing-0").connect();
    let mut old = member().await.unwrap();
    world.send("only").await;
    let held = one(&mut old).await;
    old.output().add(&held.0, &receipt(&held.0)).unwrap();
    let mut new = member().await.unwrap();
    // The only partition stays with the old process until it leaves.
    tokio::time::timeout(LIMIT, new.joined()).await.unwrap();
    settle(&old, &held, Settlement::Ack).await;
    assert_fenced(&mut old).await;
    old.close().await;
    let again = one(&mut new).await;
    assert_eq!(again.0.body, b"only");
    new.output().add(&again.0, &receipt(&again.0)).unwrap();
    new.close().await;
    settle(&new, &again, Settlement::Ack).await;
    world.until_committed(0, 1).await;
    assert_eq!(receipts(config(&world.server), 1), ["only"]);
}

#[tokio::test]
async fn a_message_whose_partition_moves_before_its_transaction_has_one_receipt() {
    let world = World::new(2).await;
    world.create(RECEIPTS, 1).await;
    let mut first = world.builder().transactions("billing-0").connect().await.unwrap();
    for (partition, body) in [(0, b"0"), (1, b"1")] {
        world.send_to(partition, None, Some(body), OwnedHeaders::new()).await;
    }
    let mut held = Vec::new();
    while held.len() < 2 {
        held.extend(receive(&mut first, 2).await);
    }
    for (delivery, _) in &held {
        first.output().add(delivery, &receipt(delivery)).unwrap();
    }
    let mut second = world.builder().transactions("billing-1").connect().await.unwrap();
    let taken = one(&mut second).await;
    second.output().add(&taken.0, &receipt(&taken.0)).unwrap();
    for (delivery, tag) in &held {
        let settled = first.settler().settle(delivery, tag, &Settlement::Ack).await;
        let is_moved = delivery.position.partition == taken.0.position.partition;
        assert_eq!(settled.map_err(|error| error.kind()), if is_moved { Err(SourceErrorKind::Gone) } else { Ok(()) });
    }
    settle(&second, &taken, Settlement::Ack).await;
    for partition in [0, 1] {
        world.until_committed(partition, 1).await;
    }
    let mut bodies = receipts(config(&world.server), 2);
    bodies.sort();
    assert_eq!(bodies, ["0", "1"]);
}

/// Receives until there is an error, which must name the other process with the same id.
async fn assert_fenced(source: &mut KafkaSource) {
    let error = failure(source).await;
    assert!(
        error.kind() == SourceErrorKind::Fatal && error.to_string().contains("the same `transactions` id"),
        "{error}"
    );
}
