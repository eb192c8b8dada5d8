//! `consume --source kafka://…`
use idempotent::kafka::KafkaDeadLetters;
use idempotent::mq::DeadLetters;
use idempotent_harness::servers::KafkaServer;

use crate::consume::support::Job;

/// The time without deliveries after which the program ends. It exceeds all delays of the policy, and the time in which a member joins
/// its group on a busy machine.
const IDLE: &str = "40s";

#[tokio::test]
async fn an_invalid_delivery_is_dead_lettered_byte_for_byte() {
    let server = KafkaServer::start();
    let source = format!("{}?topic=odd&group=workers", server.url());
    let job = Job::over(b"{\"delivery_id\":\"a\"}\n\nwhat?\xff\r\n{\"delivery_id\":\"a\"}\n");
    let ended = job.run(&["--json", "--source", &source, "--publish", "in.jsonl", "--idle", IDLE]).exits(1);
    assert_eq!(ended.counts(["deliveries", "executed", "malformed"]), [3, 1, 1]);
    let mut letters = KafkaDeadLetters::new(server.url(), "odd");
    assert_eq!(letters.count().await.unwrap(), 1);
    assert_eq!(letters.next().await.unwrap().unwrap().0.body, b"what?\xff\r");
}

#[test]
fn a_source_without_a_broker_or_a_part_of_its_url_is_refused_with_the_remedy() {
    let job = Job::over(b"{\"delivery_id\":1}\n");
    for (source, parts) in [
        ("kafka://h", ["names no topic", "`?topic=NAME`"]),
        ("kafka://h?topic=a", ["names no group", "`?group=NAME`"]),
        ("kafka://app:hunter2@h?topic=a&group=b&queue=c", ["`queue` is not known", "topic and group"]),
        ("kafka://127.0.0.1:1?topic=a&group=b", ["cannot use the topic a at kafka://127.0.0.1:1", "is Kafka there"]),
    ] {
        let ended = job.run(&["--json", "--source", source]).exits(2);
        assert!(!ended.stderr.contains("hunter2"), "{}", ended.stderr);
        for part in parts {
            assert!(ended.stderr.contains(part), "{part} in {}", ended.stderr);
        }
    }
}
