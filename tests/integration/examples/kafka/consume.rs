//! `consume --source kafka://…`
use idempotent::kafka::KafkaDeadLetters;
use idempotent::mq::DeadLetters;
use idempotent_harness::servers::KafkaServer;

use crate::consume::support::Job;

/// The time without deliveries after which the program ends. It exceeds all delays of the policy.
const IDLE: &str = "6s";

#[test]
fn a_topic_s_messages_have_the_effects_that_the_file_has() {
    let server = KafkaServer::start();
    let source = format!("{}?topic=webhooks&group=workers", server.url());
    let file = Job::new();
    file.run(&["--json"]).exits(0);
    let job = Job::new();
    let run = |more: &[&str]| job.run(&[&["--json", "--source", &source, "--idle", IDLE], more].concat());
    let first = run(&["--publish", "in.jsonl", "--fail-every", "3"]).exits(0);
    // A slow broker may deliver a message twice.
    let [deliveries, others @ ..] =
        first.counts(["deliveries", "distinct_keys", "executed", "failed", "dead", "malformed"]);
    assert!(deliveries >= 494, "{deliveries}");
    assert_eq!(others, [287, 287, 143, 0, 0]);
    let published = "494 messages published from in.jsonl to the topic webhooks at kafka://127.0.0.1";
    assert!(first.stderr.contains(published), "{}", first.stderr);
    assert_eq!(job.effects(), file.effects());
    let second = run(&[]).exits(0);
    assert_eq!(second.counts(["deliveries"]), [0], "all messages are settled");
    let again = run(&["--publish", "in.jsonl"]).exits(0);
    let [deliveries, executed] = again.counts(["deliveries", "executed"]);
    assert!(deliveries >= 494 && executed == 0, "{deliveries} {executed}");
    assert_eq!(job.effects(), file.effects());
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
    let job = Job::over(b"{\"delivery_id\":\"a\"}\n\nwhat?\xff\r\n{\"delivery_id\":\"a\"}\n");
    let ended = job.run(&["--json", "--source", &source, "--publish", "in.jsonl", "--idle", IDLE]).exits(1);
    assert_eq!(ended.counts(["deliveries", "executed", "malformed"]), [3, 1, 1]);
    let mut letters = KafkaDeadLetters::new(server.url(), "odd");
    assert_eq!(letters.count().await.unwrap(), 1);
    assert_eq!(letters.next().await.unwrap().unwrap().delivery.body, b"what?\xff\r");
}

#[test]
fn a_source_without_a_broker_or_a_part_of_its_url_is_refused_with_the_remedy() {
    let job = Job::over(b"{\"delivery_id\":1}\n");
    for (source, parts) in [
        ("kafka://h", ["names no topic", "`?topic=NAME`"]),
        ("kafka://h?topic=a", ["names no group", "`?group=NAME`"]),
        ("kafka://app:hunter2@h?topic=a&group=b&queue=c", ["`queue` is not known", "topic, group and member"]),
        ("kafka://127.0.0.1:1?topic=a&group=b", ["cannot use the topic a at kafka://127.0.0.1:1", "is Kafka there"]),
    ] {
        let ended = job.run(&["--json", "--source", source]).exits(2);
        assert!(!ended.stderr.contains("hunter2"), "{}", ended.stderr);
        for part in parts {
            assert!(ended.stderr.contains(part), "{part} in {}", ended.stderr);
        }
    }
}
