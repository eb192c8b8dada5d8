//! Dead letters of Redis Streams.
use std::process::{Command, Stdio};
use std::time::Duration;

use idempotent::redis_streams::{StartPosition, StreamsDeadLetters, StreamsSource};
use idempotent::store::{
    Claim, ClaimHandle, ClaimRequest, OnExpiry, OwnerToken, Release, ReleaseKind, Settled, StateKind,
};
use idempotent::{Identity, Key, RedisStore, Scene, Store};
use idempotent_harness::servers::RedisServer;

use crate::dead::brokers::ends_without_an_answer;
use crate::dead::site::{BODIES, REASONS, Site, bury, comes_back};
use crate::support::{Ran, command_without_store, ran};

const HOUR: Duration = Duration::from_secs(3600);

/// Marks a key as dead. Returns its name and its letter's id.
async fn dead_key(store: &RedisStore, part: &str) -> (Key, String) {
    let key = Identity::new(Scene::Mq, "orders", part).key("idempotent").unwrap();
    let owner = OwnerToken(17);
    let request = ClaimRequest {
        key: key.clone(),
        owner,
        lease: HOUR,
        fingerprint: None,
        max_attempts: 0,
        on_expiry: OnExpiry::Takeover,
        retention: HOUR,
        display: None,
    };
    let Claim::Acquired(grant) = store.claim(&request).await.unwrap() else { panic!("the key is held") };
    let held = ClaimHandle { fencing: Some(grant.fencing), ..ClaimHandle::unanswered(key.clone(), owner) };
    let release =
        Release { kind: ReleaseKind::MarkDead, delay: Duration::ZERO, retention: HOUR, error: "no stock".into() };
    assert_eq!(store.release(&held, &release).await.unwrap(), Settled::Done);
    let id = format!("{key}:{}", grant.fencing);
    (key, id)
}

#[tokio::test(flavor = "multi_thread")]
async fn letters_of_a_stream_are_listed_shown_and_put_back_with_a_free_key() {
    let server = RedisServer::start();
    let url = server.url();
    let store = RedisStore::connect(&url).await.unwrap();
    let source = StreamsSource::builder(&url, "orders", "billing").declare(StartPosition::Beginning);
    let mut source = source.connect().await.unwrap();
    let mut keys = Vec::new();
    for (number, body) in BODIES.iter().enumerate() {
        server.command(&[&b"XADD"[..], b"orders", b"*", b"trace", b"secret", b"body", body]);
        let (key, id) = dead_key(&store, &number.to_string()).await;
        bury(&mut source, REASONS[number], Some(id)).await;
        keys.push(key);
    }
    let queue = url.replacen("redis://", "redis+stream://", 1);
    let site = Site { queue: &["--queue", &queue, "--name", "orders"] };
    site.is_listed();
    site.is_redriven();
    comes_back(&mut source, BODIES[0]).await;

    let state = async |at: usize| store.peek(&keys[at]).await.unwrap().unwrap().state.kind();
    let letters = site.dead("list", &["--cause", "stock"]).lines();
    assert_eq!(letters[0]["key"], keys[2].as_str());
    let redrive = ["--id", letters[0]["id"].as_str().unwrap(), "--reason", "why", "--yes", "--let-go"];
    site.dead("redrive", &redrive).fails(2, "no store");
    assert_eq!(state(2).await, StateKind::Dead);
    let done = site.dead("redrive", &[&redrive[..], &["--store", &url]].concat()).lines();
    assert_eq!(done[0]["outcome"], "done, the key can be claimed");
    let states = [state(0).await, state(1).await, state(2).await];
    assert_eq!(states, [StateKind::Dead, StateKind::Dead, StateKind::Vacant]);
    comes_back(&mut source, BODIES[2]).await;
    assert_eq!(site.reasons(&[]), REASONS[1..2]);
    ends_without_an_answer(StreamsDeadLetters::new(&url, "orders").unwrap(), || server.pause()).await;
    server.resume();
}

/// Starts a server with the stream `orders`. Returns it with the URL of its queues.
fn with_stream() -> (RedisServer, String) {
    let server = RedisServer::start();
    let url = server.url().replacen("redis://", "redis+stream://", 1);
    server.command(&["XGROUP", "CREATE", "orders", "billing", "0", "MKSTREAM"]);
    (server, url)
}

/// Writes a dead letter with a body, a reason and a number of deaths. `key` is the number in its id.
fn write_letter(server: &RedisServer, stream: &str, body: &str, (reason, key, deaths): (&str, &str, &str)) {
    let id = format!("idempotent:mq:orders:{{Pv_mJFCxQoKrWCJDVdincw}}:{key}");
    let names = ["reason", "id", "attempts", "first-at", "last-at", "deaths"].map(|name| format!("idempotent-{name}"));
    let fields = names.iter().map(String::as_str).zip([reason, &id, "17", "1", "2", deaths]);
    let fields = fields.flat_map(|(name, value)| [name, value]);
    server.command(&["XADD", stream, "*", "body", body].into_iter().chain(fields).collect::<Vec<_>>());
}

/// Writes dead letters of the stream `orders`.
fn write_letters(server: &RedisServer, count: usize) {
    for number in 0..count {
        write_letter(server, "orders:dead", "", (REASONS[number % 3], &number.to_string(), "1"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn letters_of_a_stream_are_removed() {
    let (server, url) = with_stream();
    write_letters(&server, 3);
    let site = Site { queue: &["--queue", &url, "--name", "orders"] };
    site.is_discarded();
    let rest = ["--limit", "1", "--reason", "why", "--yes"];
    assert_eq!(site.dead("discard", &rest).lines()[1]["discarded"], 1);
    assert_eq!(site.reasons(&[]), REASONS[2..]);
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_letters_of_one_message_exactly_the_named_one_is_removed() {
    let (server, url) = with_stream();
    for (body, deaths) in [("1", "1"), ("1", "2"), ("2", "1")] {
        write_letter(&server, "orders:dead", body, ("no stock", "7", deaths));
    }
    let site = Site { queue: &["--queue", &url, "--name", "orders"] };
    let ids = || {
        let letters = site.dead("list", &[]).lines();
        letters.iter().map(|letter| letter["id"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let all = ids();
    let named = ["--id", &all[1], "--id", &all[2], "--id", "0-1@7", "--reason", "why", "--yes"];
    let ended = site.dead("discard", &named);
    ended.fails(4, "no dead letter has the id `0-1@7`");
    assert!(ended.out.contains("\"discarded\":2"), "{ended:?}");
    assert_eq!(ids(), all[..1]);
}

/// Starts a change of letters, waits until it has changed the first one, and sends a signal.
fn interrupted(site: &Site<'_>, signal: &str, arguments: &[&str]) -> (Ran, usize) {
    let file = tempfile::NamedTempFile::new().unwrap();
    let path = file.path().to_str().unwrap();
    let arguments = [&["dead"], arguments, site.queue, &["--reason", "why", "--yes", "--audit", path]].concat();
    let mut command = command_without_store(&arguments);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let results = || std::fs::read_to_string(path).unwrap().matches("\"outcome\":\"done\"").count();
    while results() == 0 {
        std::thread::yield_now();
    }
    let sent = Command::new("kill").args([&format!("-{signal}"), &child.id().to_string()]).status();
    assert!(sent.unwrap().success());
    (ran(child.wait_with_output().unwrap()), results())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signal_ends_a_change_after_the_current_letter_with_its_summary() {
    let (server, url) = with_stream();
    let site = Site { queue: &["--queue", &url, "--name", "orders"] };
    for (signal, code) in [("INT", 130), ("TERM", 143)] {
        server.command(&["DEL", "orders", "orders:dead"]);
        server.command(&["XGROUP", "CREATE", "orders", "billing", "0", "MKSTREAM"]);
        // At one letter per second, the command would need ten minutes.
        write_letters(&server, 600);
        let (ended, results) = interrupted(&site, signal, &["redrive", "--limit", "600", "--rate", "1"]);
        ended.fails(code, "interrupted");
        let summary: serde_json::Value = serde_json::from_str(ended.out.lines().last().unwrap()).unwrap();
        let put_back = summary["put_back"].as_u64().unwrap();
        assert!(summary["stopped"] == true && (1..600).contains(&put_back), "{ended:?}");
        assert_eq!(results as u64, put_back, "each change has its result in the audit log");
        let lengths = ["orders", "orders:dead"].map(|stream| server.command(&["XLEN", stream]).integer().unwrap());
        assert_eq!(lengths, [put_back as i64, 600 - put_back as i64]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_died_often_stays_and_a_bad_stream_is_named() {
    let (server, url) = with_stream();
    for deaths in ["3", "4"] {
        write_letter(&server, "morgue", "", ("no stock", "7", deaths));
    }
    let site = Site { queue: &["--queue", &url, "--name", "orders", "--dead-stream", "morgue"] };
    let redrive = |more: &[&str]| {
        let done = site.dead("redrive", &[&["--limit", "9", "--reason", "why", "--yes"], more].concat()).lines();
        let counts = done.last().unwrap();
        (counts["put_back"].as_u64().unwrap(), counts["skipped"].as_u64().unwrap())
    };
    assert_eq!(redrive(&[]), (1, 1));
    assert_eq!(redrive(&["--max-deaths", "4"]), (1, 0));
    let empty = site.dead("list", &[]);
    assert!(empty.lines().is_empty() && empty.err.contains("0 of 0 dead letters of orders on redis+stream://"));

    // A stream that nobody would read is not created.
    server.command(&["XADD", "invoices:dead", "*", "body", "x"]);
    let invoices = Site { queue: &["--queue", &url, "--name", "invoices"] };
    let refused = invoices.dead("redrive", &["--limit", "1", "--reason", "why", "--yes"]);
    refused.fails(5, "does not exist");
    assert!(refused.out.contains("\"put_back\":0"), "{refused:?}");
    server.command(&["CONFIG", "SET", "requirepass", "s3cret"]);
    site.dead("list", &[]).fails(8, "orders on redis+stream://");
}
