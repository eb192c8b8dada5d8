//! `--source` with queues of PGMQ and streams of NATS JetStream, on real servers.
#![allow(clippy::panic, clippy::unwrap_used, missing_docs)]
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use idempotent::mq::DeadLetters;
use idempotent::nats::JetStreamDeadLetters;
use idempotent::pgmq::PgmqDeadLetters;
use idempotent_harness::servers::{NatsServer, PostgresServer};
use serde_json::Value;
use sqlx::Connection;
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};

static NATS: LazyLock<NatsServer> = LazyLock::new(NatsServer::start);
static POSTGRES: LazyLock<PostgresServer> = LazyLock::new(|| {
    let server = PostgresServer::start();
    server.install_pgmq("postgres");
    server
});

/// The time without deliveries after which the program ends. It exceeds all delays of the policy, also on a busy machine.
const IDLE: &str = "6s";
/// Real deliveries: 494, with 287 keys.
const WEBHOOKS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/data/webhooks.jsonl");

/// A folder with an input, a store and effects.
struct Job(tempfile::TempDir);

impl Job {
    fn over(input: &[u8]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("in.jsonl"), input).unwrap();
        Self(folder)
    }

    fn webhooks() -> Self {
        Self::over(&std::fs::read(WEBHOOKS).unwrap())
    }

    fn command(&self, source: &str, more: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_consume"));
        command.current_dir(self.0.path()).args(["--json", "--store", "store.db", "--effects", "effects.db"]);
        command
            .args(["--source", source])
            .args(more)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// Runs the program, which must end with this exit code.
    #[track_caller]
    fn run(&self, source: &str, more: &[&str], code: i32) -> Ended {
        Ended::of(self.command(source, more).output().unwrap(), code)
    }

    /// Publishes the input, and consumes it.
    #[track_caller]
    fn filled(&self, source: &str, more: &[&str], code: i32) -> Ended {
        self.run(source, &[&["--publish", "in.jsonl", "--idle", IDLE], more].concat(), code)
    }
}

struct Ended {
    stdout: String,
    stderr: String,
}

impl Ended {
    #[track_caller]
    fn of(output: Output, code: i32) -> Self {
        let text = |bytes| String::from_utf8(bytes).unwrap();
        let ended = Self { stdout: text(output.stdout), stderr: text(output.stderr) };
        assert_eq!(output.status.code(), Some(code), "{}{}", ended.stdout, ended.stderr);
        ended
    }

    #[track_caller]
    fn counts<const N: usize>(&self, names: [&str; N]) -> [u64; N] {
        let json: Value = serde_json::from_str(&self.stdout).unwrap();
        names.map(|name| json[name].as_u64().unwrap_or_else(|| panic!("no {name} in {json}")))
    }
}

const SUMS: [&str; 4] = ["deliveries", "distinct_keys", "executed", "replayed"];

fn pgmq(queue: &str) -> String {
    format!("{}?queue={queue}", pgmq_url("postgres"))
}

fn pgmq_url(database: &str) -> String {
    POSTGRES.url_of(database).replacen("postgres://", "pgmq://", 1)
}

fn nats(stream: &str) -> String {
    format!("{}?stream={stream}&consumer=workers", NATS.url())
}

/// Returns the number of unsettled messages.
fn open(queue: &str) -> String {
    POSTGRES.psql("postgres", &format!("SELECT count(*) FROM pgmq.q_{queue}"))
}

/// Returns the bodies of all dead letters, in their order.
fn bodies(mut letters: impl DeadLetters) -> Vec<Vec<u8>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut bodies = Vec::new();
        letters.count().await.unwrap();
        while let Some(letter) = letters.next().await.unwrap() {
            bodies.push(letter.delivery.body);
        }
        letters.close().await;
        bodies
    })
}

#[test]
fn each_key_of_a_queue_of_pgmq_has_one_effect() {
    let (job, source) = (Job::webhooks(), pgmq("same"));
    let first = job.filled(&source, &["--fail-every", "3"], 0);
    assert_eq!(first.counts(SUMS), [494, 287, 287, 207]);
    assert_eq!(first.counts(["failed", "dead", "malformed"]), [143, 0, 0]);
    assert!(first.stderr.contains("494 messages published from in.jsonl to the queue same at pgmq://127.0.0.1"));
    assert_eq!(open("same"), "0");
    let second = job.filled(&source, &[], 0);
    assert_eq!(second.counts(SUMS), [494, 287, 0, 494]);
}

#[test]
fn each_key_of_a_stream_of_nats_has_one_effect_and_each_consumer_reads_all_messages() {
    let (job, source) = (Job::webhooks(), nats("same"));
    let first = job.filled(&source, &["--fail-every", "3"], 0);
    assert_eq!(first.counts(SUMS), [494, 287, 287, 207]);
    assert_eq!(first.counts(["failed", "dead", "malformed"]), [143, 0, 0]);
    assert!(first.stderr.contains("494 messages published from in.jsonl to the stream same at nats://127.0.0.1"));
    let other = job.run(&source.replace("workers", "others"), &["--idle", IDLE], 0);
    assert_eq!(other.counts(SUMS), [494, 287, 0, 494]);
}

#[test]
fn an_invalid_delivery_is_dead_lettered_byte_for_byte() {
    let job = Job::over(b"{\"delivery_id\":\"a\"}\n\nwhat?\xff\r\n{\"delivery_id\":\"a\"}\n{ \"delivery_id\":\"\"}");
    for source in [pgmq("odd"), nats("odd")] {
        let ended = job.filled(&source, &["--fresh"], 1);
        assert_eq!(ended.counts(SUMS), [4, 1, 1, 1]);
        assert_eq!(ended.counts(["malformed"]), [2]);
        assert!(ended.stderr.contains("message 3-"), "{}", ended.stderr);
    }
    let expected = [&b"what?\xff\r"[..], b"{ \"delivery_id\":\"\"}"];
    let mut of_pgmq = bodies(PgmqDeadLetters::new(pgmq_url("postgres"), "odd"));
    let mut of_nats = bodies(JetStreamDeadLetters::new(NATS.url(), "odd"));
    // Concurrent handlers settle in any order.
    of_pgmq.sort();
    of_nats.sort();
    assert_eq!((of_pgmq, of_nats), (expected.map(<[u8]>::to_vec).to_vec(), expected.map(<[u8]>::to_vec).to_vec()));
    assert_eq!(open("odd"), "0");
}

#[test]
fn the_next_process_handles_the_messages_of_a_killed_one() {
    const WORKERS: u64 = 4;
    for source in [pgmq("killed"), nats("killed")] {
        let job = Job::webhooks();
        let mut running =
            job.command(&source, &["--workers", "4", "--publish", "in.jsonl", "--slow-ms", "200"]).spawn().unwrap();
        let effects = job.0.path().join("effects.db");
        let until = Instant::now() + Duration::from_secs(60);
        while rows(&effects) < 12 {
            assert!(Instant::now() < until, "no effects");
            std::thread::yield_now();
        }
        running.kill().unwrap();
        running.wait().unwrap();
        let before = rows(&effects);
        // Longer than the time after which the server delivers the messages of the killed process again.
        let second = job.run(&source, &["--workers", "4", "--idle", "12s"], 0);
        let [executed, malformed] = second.counts(["executed", "malformed"]);
        let total = rows(&effects);
        assert_eq!((total, malformed), (before + executed, 0));
        assert!((287..=287 + WORKERS).contains(&total), "{total}");
        let third = job.run(&source, &["--idle", IDLE], 0);
        assert_eq!(third.counts(["deliveries"]), [0]);
    }
}

/// Returns the number of effects, or 0 before the program has created their table.
fn rows(file: &Path) -> u64 {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let options = SqliteConnectOptions::new().filename(file).busy_timeout(Duration::from_secs(10));
    let counted = runtime.block_on(async {
        let mut connection = SqliteConnection::connect_with(&options).await.ok()?;
        sqlx::query_scalar::<_, i64>("SELECT count(*) FROM effects").fetch_one(&mut connection).await.ok()
    });
    counted.and_then(|rows| rows.try_into().ok()).unwrap_or_default()
}

#[test]
fn an_invalid_source_is_refused_with_the_remedy() {
    let job = Job::over(b"{\"delivery_id\":1}\n");
    let refused = |source: &str, parts: &[&str]| {
        let ended = job.run(source, &[], 2);
        assert_eq!(ended.stdout, "", "{source}");
        for part in parts {
            assert!(ended.stderr.contains(part), "{part} in {}", ended.stderr);
        }
        assert!(!ended.stderr.contains("hunter2"), "{}", ended.stderr);
    };
    refused("pgmq://app:hunter2@h/shop", &["--source pgmq://h/shop names no queue", "`?queue=NAME`"]);
    refused("pgmq://h/shop?queue=a&group=b", &["`group` is not known", "known are queue"]);
    refused("nats://app:hunter2@h", &["names no stream", "`?stream=NAME`"]);
    refused("nats://h?stream=a", &["names no consumer", "`?consumer=NAME`"]);
    refused("pulsar://h?topic=a", &["no broker for `pulsar://`", "nats://", "pgmq://", "kafka://", "sqs://"]);
    if cfg!(not(feature = "kafka")) {
        refused("kafka://h?topic=a", &["needs the feature kafka", "--features kafka"]);
    }
    if cfg!(not(feature = "kafka-tls")) {
        refused("kafkas://h?topic=a", &["needs the feature kafka-tls", "--features kafka-tls"]);
    }
    if cfg!(not(feature = "sqs")) {
        refused("sqs://eu-west-1?queue=a", &["needs the feature sqs", "--features sqs"]);
    }
    let away = "cannot use the queue a at pgmq://127.0.0.1:1/shop";
    refused("pgmq://app:hunter2@127.0.0.1:1/shop?queue=a", &[away, "is PostgreSQL there"]);
    let away = "cannot use the stream a at nats://127.0.0.1:1";
    refused("nats://app:hunter2@127.0.0.1:1?stream=a&consumer=b", &[away, "is NATS with JetStream there"]);
    POSTGRES.psql("postgres", "CREATE DATABASE without_pgmq");
    let without = format!("{}?queue=a", pgmq_url("without_pgmq"));
    refused(&without, &["the schema `pgmq` is missing", "`CREATE EXTENSION pgmq`"]);
    refused(&pgmq("or.ders"), &["use 1 to 47 letters"]);
    refused(&nats("or.ders"), &["use letters, digits"]);
}
