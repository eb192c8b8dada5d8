//! `consume --source rocketmq://…`
use idempotent_harness::servers::RocketServer;

use crate::consume::shared;
use crate::consume::support::Job;

#[test]
fn a_topic_s_messages_have_the_effects_that_the_file_has() {
    let server = RocketServer::start();
    let source = format!("{}?topic=webhooks&group=workers", server.url());
    let file = Job::new();
    file.run(&["--json"]).exits(0);
    let job = Job::new();
    let run = |more: &[&str]| job.run(&[&["--json", "--source", &source, "--idle", "10s"], more].concat());
    let first = run(&["--publish", "in.jsonl"]).exits(0);
    assert_eq!(first.counts(["distinct_keys", "executed", "failed", "dead", "malformed"]), [287, 287, 0, 0, 0]);
    // What was acknowledged in the last moment may come again.
    assert!(first.counts(["deliveries"])[0] >= 494, "{}", first.stdout);
    assert!(first.stderr.contains("494 messages published from in.jsonl to the topic webhooks"), "{}", first.stderr);
    assert_eq!(job.effects(), file.effects());
    // Again: nothing is executed.
    let second = run(&["--publish", "in.jsonl"]).exits(0);
    assert_eq!(second.counts(["executed"]), [0]);
    assert_eq!(job.effects(), file.effects());
    assert_eq!(server.backlog("workers-dead", "nobody"), 0);
}

#[test]
fn a_missing_name_server_is_reported_with_what_to_check() {
    let parts = ["cannot use the topic a at rocketmq://127.0.0.1:1", "name server there"];
    shared::sources_are_refused(&[("rocketmq://127.0.0.1:1?topic=a&group=b", &parts)]);
}
