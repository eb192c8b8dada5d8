//! `consume --source kafka://…`
use idempotent::kafka::KafkaDeadLetters;
use idempotent_harness::servers::KafkaServer;

use crate::consume::shared;
use crate::consume::support::Job;

/// The time without deliveries after which the program ends. It exceeds all delays of the policy.
const IDLE: &str = "6s";

#[test]
fn a_topic_s_messages_have_the_effects_that_the_file_has() {
    let server = KafkaServer::start();
    let source = format!("{}?topic=webhooks&group=workers", server.url());
    let published = "topic webhooks at kafka://127.0.0.1";
    shared::the_messages_of_a_broker_have_the_effects_that_the_file_has(&source, IDLE, published);
}

/// The first member of a group waits for its partitions for more than the 2 s without deliveries.
#[test]
fn the_time_without_deliveries_begins_with_the_assignment_of_partitions() {
    let server = KafkaServer::start();
    let source = format!("{}?topic=few&group=workers", server.url());
    let job = Job::over(b"{\"delivery_id\":1}\n");
    let ended = job.run(&["--json", "--source", &source, "--publish", "in.jsonl", "--idle", "2s"]).exits(0);
    assert_eq!(ended.counts(["deliveries", "executed"]), [1, 1]);
}

#[tokio::test]
async fn an_invalid_delivery_is_dead_lettered_byte_for_byte() {
    let server = KafkaServer::start();
    let source = format!("{}?topic=odd&group=workers&member=worker-0", server.url());
    let letters = KafkaDeadLetters::new(server.url(), "odd");
    shared::an_invalid_delivery_is_dead_lettered_byte_for_byte(&source, IDLE, letters).await;
}

#[test]
fn a_source_without_a_broker_or_a_part_of_its_url_is_refused_with_the_remedy() {
    shared::sources_are_refused(&[
        ("kafka://h", &["names no topic", "`?topic=NAME`"]),
        ("kafka://h?topic=a", &["names no group", "`?group=NAME`"]),
        ("kafka://app:hunter2@h?topic=a&group=b&queue=c", &["`queue` is not known", "topic, group and member"]),
        ("kafka://127.0.0.1:1?topic=a&group=b", &["cannot use the topic a at kafka://127.0.0.1:1", "is Kafka there"]),
    ]);
}
