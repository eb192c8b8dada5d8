//! The job on real brokers: `--source`.
use std::process::Command;
use std::sync::LazyLock;

use idempotent_harness::servers::{RabbitServer, RedisServer};

use crate::consume::support::{Ended, Job};
use crate::wait::until;

pub(crate) static RABBIT: LazyLock<RabbitServer> = LazyLock::new(RabbitServer::start);
static REDIS: LazyLock<RedisServer> = LazyLock::new(RedisServer::start);

const SUMS: [&str; 4] = ["deliveries", "distinct_keys", "executed", "replayed"];
/// The time without deliveries after which the program ends. It exceeds all delays of the policy, also on a busy
/// machine.
const IDLE: &str = "6s";

/// A queue, under a name that no other test has.
struct Place {
    source: String,
    /// Returns the number of waiting messages or dead letters.
    count: Box<dyn Fn(&str) -> u64>,
}

fn rabbit_url(queue: &str, more: &str) -> String {
    format!("rabbitmq://guest:guest@{}/?queue={queue}{more}", RABBIT.address())
}

fn places(name: &'static str) -> [Place; 2] {
    let rabbit =
        move |suffix: &str| RABBIT.queues("/", "messages").get(&format!("{name}{suffix}")).copied().unwrap_or_default();
    let redis = move |suffix: &str| match suffix {
        "" => REDIS.command(&["XPENDING", name, "workers"]).items()[0].text().parse().unwrap(),
        _ => REDIS.command(&["XLEN", &format!("{name}:dead")]).text().parse().unwrap(),
    };
    let stream = format!("redis-streams://{}/0?stream={name}&group=workers", REDIS.address());
    [Place { source: rabbit_url(name, ""), count: Box::new(rabbit) }, Place { source: stream, count: Box::new(redis) }]
}

impl Place {
    /// Fills the queue with the job's input, and consumes it.
    fn filled(&self, job: &Job, more: &[&str]) -> Ended {
        job.run(&[&["--json", "--source", &self.source, "--publish", "in.jsonl", "--idle", IDLE], more].concat())
    }

    fn rest(&self, job: &Job, more: &[&str]) -> Ended {
        job.run(&[&["--json", "--source", &self.source, "--idle", IDLE], more].concat())
    }
}

#[test]
fn a_broker_s_messages_have_the_effects_that_the_file_has() {
    let file = Job::new();
    file.run(&["--json"]).exits(0);
    for place in places("same") {
        let job = Job::new();
        let first = place.filled(&job, &[]).exits(0);
        assert_eq!(first.counts(SUMS), [494, 287, 287, 207]);
        assert_eq!(first.counts(["failed", "dead", "malformed"]), [0, 0, 0]);
        assert!(first.stderr.contains("494 messages published from in.jsonl to the "), "{}", first.stderr);
        assert_eq!(job.effects(), file.effects());
        assert_eq!((place.count)(""), 0);
        // No file of dead letters is made, or emptied.
        assert!(!job.path("in.jsonl.dead.jsonl").exists());

        let second = place.filled(&job, &[]).exits(0);
        assert_eq!(second.counts(SUMS), [494, 287, 0, 494]);
        assert!(second.stderr.contains("--fresh starts over"), "{}", second.stderr);
        let none = place.rest(&job, &[]).exits(0);
        assert_eq!(none.counts(SUMS), [0; 4]);
        assert!(none.stderr.contains("there was nothing to read: the "), "{}", none.stderr);
    }
}

#[test]
fn a_quorum_queue_and_one_that_is_there_are_sources_too() {
    for (queue, kind) in [("raft", "quorum"), ("plain", "classic"), ("plain", "existing")] {
        let source = rabbit_url(queue, &format!("&kind={kind}&heartbeat=7"));
        let place = Place { source, count: Box::new(|_| 0) };
        assert_eq!(place.filled(&Job::new(), &[]).exits(0).counts(SUMS), [494, 287, 287, 207], "{kind}");
    }
    let other = Job::new().run(&["--source", &rabbit_url("raft", ""), "--idle", IDLE]).exits(2);
    for part in ["cannot use the queue raft at amqp://127.0.0.1", "PRECONDITION_FAILED", "&kind=existing"] {
        assert!(other.stderr.contains(part), "{part} in {}", other.stderr);
    }
}

#[test]
fn every_third_run_fails_and_is_made_up_for_by_a_redelivery() {
    for place in places("thirds") {
        let job = Job::new();
        let ended = place.filled(&job, &["--fail-every", "3"]).exits(0);
        assert_eq!(ended.counts(SUMS), [494, 287, 287, 207]);
        assert_eq!(ended.counts(["failed", "dead"]), [143, 0]);
        job.assert_each_key_once();
    }
}

#[test]
fn an_invalid_delivery_is_dead_lettered_by_the_broker_byte_for_byte() {
    let lines = b"{\"delivery_id\":\"a\"}\n\nwhat?\xff\r\n{\"delivery_id\":\"a\"}\n{\"delivery_id\":\"\"}";
    for place in places("odd") {
        let job = Job::over(lines);
        let ended = place.filled(&job, &[]).exits(1);
        assert_eq!(ended.counts(SUMS), [4, 1, 1, 1]);
        assert_eq!(ended.counts(["malformed"]), [2]);
        assert!(
            ended.stderr.contains("message 3-") && ended.stderr.contains(" is malformed: not UTF-8"),
            "{}",
            ended.stderr
        );
        assert_eq!(((place.count)(""), (place.count)(dead(&place))), (0, 2));
        let shown = job.run(&["--source", &place.source, "--publish", "in.jsonl", "--idle", IDLE]).exits(1).stdout;
        assert!(shown.contains("dead     the ") && shown.contains("odd"), "{shown}");
    }
    let aside = REDIS.command(&["XRANGE", "odd:dead", "-", "+"]);
    let bodies: Vec<_> = aside.items().iter().map(|entry| entry.items()[1].items()[3].clone()).collect();
    assert!(bodies.contains(&idempotent_harness::servers::Value::Bytes(b"what?\xff\r".to_vec())), "{bodies:?}");
}

fn dead(place: &Place) -> &'static str {
    if place.source.starts_with("rabbitmq") { ".dead" } else { ":dead" }
}

#[test]
fn a_file_that_is_published_twice_has_the_same_ids_twice() {
    let source = format!("redis-streams://{}/0?stream=ids&group=workers", REDIS.address());
    let job = Job::over(b"{\"delivery_id\":1}\n{\"delivery_id\":1}\n{\"delivery_id\":2}\n");
    let place = Place { source, count: Box::new(|_| 0) };
    for _ in 0..2 {
        place.filled(&job, &[]).exits(0);
    }
    let entries = REDIS.command(&["XRANGE", "ids", "-", "+"]);
    let ids: Vec<_> = entries.items().iter().map(|entry| entry.items()[1].items()[1].text()).collect();
    assert_eq!(ids.len(), 6);
    assert_eq!(ids[..3], ids[3..]);
    assert!(ids[0] != ids[1] && ids[1] != ids[2], "{ids:?}");
}

#[test]
fn a_job_that_stops_drains_and_the_next_one_does_the_rest() {
    for (place, (signal, code)) in places("stopped").into_iter().zip([("INT", 130), ("TERM", 143)]) {
        let job = Job::new();
        let running = job.spawn(&["--json", "--slow-ms", "50", "--source", &place.source, "--publish", "in.jsonl"]);
        until("some effects", || job.try_effects().is_some_and(|rows| rows.len() >= 8));
        let sent = Command::new("kill").arg(format!("-{signal}")).arg(running.id().to_string()).status();
        assert!(sent.unwrap().success());
        let first = running.ended().exits(code);
        let [deliveries, executed] = first.counts(["deliveries", "executed"]);
        assert!((8..287).contains(&executed), "{}", first.stdout);
        assert!(first.stderr.contains("the same command again goes on"), "{}", first.stderr);

        // Nothing was left held, neither here nor there.
        let second = place.rest(&job, &[]).exits(0);
        assert_eq!(second.counts(["deliveries", "executed"]), [494 - deliveries, 287 - executed]);
        assert!(!second.stderr.contains("dead worker"), "{}", second.stderr);
        job.assert_each_key_once();
        assert_eq!((place.count)(""), 0);
    }
}

#[test]
fn the_next_process_handles_the_messages_of_a_killed_one() {
    const WORKERS: usize = 4;
    for place in places("killed") {
        let job = Job::new();
        let on = ["--json", "--workers", "4", "--source", &place.source];
        let running = job.spawn(&[&on[..], &["--publish", "in.jsonl", "--slow-ms", "200"]].concat());
        until("some effects", || job.try_effects().is_some_and(|rows| rows.len() >= 12));
        running.kill();
        // Longer than the idle time after which another consumer takes over the entries of a stream.
        let second = job.run(&[&on[..], &["--idle", "8s"]].concat()).exits(0);
        let effects = job.effects();
        assert_eq!(effects.len(), 287);
        assert!(
            effects.values().filter(|rows| **rows > 1).count() <= WORKERS && effects.values().all(|rows| *rows <= 2)
        );
        assert!(second.counts(["executed"])[0] > 200, "{}", second.stdout);
        assert_eq!((place.count)(""), 0);
    }
}

#[test]
fn a_record_that_cannot_be_read_ends_the_job_with_its_reason() {
    let place = Place { source: rabbit_url("spoilt", ""), count: Box::new(|_| 0) };
    let job = Job::over(b"{\"delivery_id\":\"a\"}\n");
    place.filled(&job, &[]).exits(0);
    job.spoil("UPDATE idempotent_record SET state = 99");
    let ended = place.filled(&job, &[]).exits(2);
    assert_eq!(ended.counts(["deliveries", "executed"]), [0, 0]);
    assert!(ended.stderr.contains("error: the handler did not run: the record is corrupt"), "{}", ended.stderr);
    assert_eq!(job.effects().len(), 1, "it may have been consumed: it does not run");
}

#[test]
fn a_broker_that_goes_away_is_waited_for_however_short_the_idle_time() {
    let server = RabbitServer::start();
    let source = format!("amqp://guest:guest@{}?queue=webhooks", server.address());
    let job = Job::new();
    let running =
        job.spawn(&["--json", "--slow-ms", "20", "--idle", "2s", "--source", &source, "--publish", "in.jsonl"]);
    until("some effects", || job.try_effects().is_some_and(|rows| rows.len() >= 8));
    server.kill();
    let began = std::time::Instant::now();
    until("longer than the idle time", || began.elapsed() > std::time::Duration::from_secs(6));
    server.restart();
    let ended = running.ended().exits(0);
    job.assert_each_key_once();
    let line: serde_json::Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!(line["executed"], 287);
    // What ran and could not be acknowledged came again, as a duplicate of itself.
    assert!(line["deliveries"].as_u64().unwrap() >= 494, "{line}");
    assert!(server.queues("/", "messages").get("webhooks") == Some(&0));
}
