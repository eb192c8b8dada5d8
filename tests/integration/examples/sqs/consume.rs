//! `consume --source sqs://…`
use idempotent::mq::DeadLetters;
use idempotent::sqs::{SqsDeadLetters, client};
use idempotent_harness::servers::MotoServer;

use crate::consume::support::Job;

/// The time without deliveries after which the program ends. It exceeds all delays of the policy.
const IDLE: &str = "10s";

#[test]
fn a_queue_s_messages_have_the_effects_that_the_file_has() {
    let server = MotoServer::start();
    let source = format!("sqs://eu-west-1?queue=webhooks&endpoint=http://{}", server.address());
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
    let published = "494 messages published from in.jsonl to the queue webhooks at sqs://eu-west-1";
    assert!(first.stderr.contains(published), "{}", first.stderr);
    assert_eq!(job.effects(), file.effects());
    let second = run(&[]).exits(0);
    assert_eq!(second.counts(["deliveries"]), [0], "all messages are deleted");
    let again = run(&["--publish", "in.jsonl"]).exits(0);
    let [deliveries, executed] = again.counts(["deliveries", "executed"]);
    assert!(deliveries >= 494 && executed == 0, "{deliveries} {executed}");
    assert_eq!(job.effects(), file.effects());
}

#[tokio::test]
async fn an_invalid_delivery_is_dead_lettered_byte_for_byte() {
    let server = tokio::task::spawn_blocking(MotoServer::start).await.unwrap();
    let endpoint = format!("endpoint=http://{}", server.address());
    let source = format!("sqs://eu-west-1?queue=odd&{endpoint}");
    let job = Job::over(b"{\"delivery_id\":\"a\"}\n\nwhat?\xff\r\n{\"delivery_id\":\"a\"}\n");
    let ended = job.run(&["--json", "--source", &source, "--publish", "in.jsonl", "--idle", IDLE]).exits(1);
    assert_eq!(ended.counts(["deliveries", "executed", "malformed"]), [3, 1, 1]);
    let mut letters = SqsDeadLetters::new(client(&format!("sqs://eu-west-1?{endpoint}")).unwrap(), "odd");
    assert_eq!(letters.count().await.unwrap(), 1);
    assert_eq!(letters.next().await.unwrap().unwrap().delivery.body, b"what?\xff\r");
}

#[test]
fn a_source_without_an_endpoint_or_a_part_of_its_url_is_refused_with_the_remedy() {
    let job = Job::over(b"{\"delivery_id\":1}\n");
    for (source, parts) in [
        ("sqs://eu-west-1", ["names no queue", "`?queue=NAME`"]),
        ("sqs://eu-west-1?queue=a&group=b", ["`group` is not known", "queue and endpoint"]),
        ("sqs://Region?queue=a", ["the URL `sqs://Region", "`sqs://eu-west-1`"]),
        ("sqs://r?queue=a&endpoint=http://127.0.0.1:1", ["cannot use the queue a at sqs://r", "may the credentials"]),
    ] {
        let ended = job.run(&["--json", "--source", source]).exits(2);
        for part in parts {
            assert!(ended.stderr.contains(part), "{part} in {}", ended.stderr);
        }
    }
}
