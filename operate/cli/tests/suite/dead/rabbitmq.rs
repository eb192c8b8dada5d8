//! Dead letters of RabbitMQ queues.
use idempotent::mq::DeadLetters;
use idempotent::rabbitmq::{Queue, RabbitDeadLetters, RabbitPublisher, RabbitSource};
use idempotent_harness::servers::RabbitServer;

use crate::dead::brokers::ends_without_an_answer;
use crate::dead::site::{BODIES, REASONS, Site, comes_back, write_letters};

/// Waits until this number of letters is ready. A finished command returns its letters a moment later.
pub(crate) async fn are_ready(url: &str, letters: u64) {
    let mut dead = RabbitDeadLetters::new(url, "orders").unwrap();
    let wait = async { while dead.count().await.unwrap() != letters {} };
    tokio::time::timeout(std::time::Duration::from_secs(60), wait).await.unwrap();
}

/// Declares a queue with three dead letters.
pub(crate) async fn letters(url: &str, queue: Queue) -> RabbitSource {
    let mut source = RabbitSource::builder(url, queue).build().unwrap();
    source.declare().await.unwrap();
    let publisher = RabbitPublisher::builder(url).build().unwrap();
    write_letters(&mut source, &publisher, "orders").await;
    source
}

#[tokio::test(flavor = "multi_thread")]
async fn letters_of_a_rabbitmq_queue_are_listed_shown_and_put_back() {
    let server = RabbitServer::start();
    let url = server.url();
    let mut source = letters(&url, Queue::classic("orders")).await;
    let site = Site { queue: &["--queue", &url, "--name", "orders"] };
    assert_eq!(site.is_listed(), ["m-0", "m-1", "m-2"]);
    are_ready(&url, 3).await;
    site.is_redriven();
    comes_back(&mut source, BODIES[0]).await;

    are_ready(&url, 2).await;
    let one = ["--message-id", "m-2", "--limit", "1", "--reason", "again", "--yes", "--rate", "0", "-o", "table"];
    let done = site.dead("redrive", &one);
    assert!(done.out.ends_with("1 put back, 1 skipped by the conditions, 0 gone\n"), "{done:?}");
    comes_back(&mut source, BODIES[2]).await;
    are_ready(&url, 1).await;
    ends_without_an_answer(RabbitDeadLetters::new(&url, "orders").unwrap(), || server.pause()).await;
    server.resume();
}

#[tokio::test(flavor = "multi_thread")]
async fn letters_are_put_back_into_a_named_queue_which_the_audit_log_names() {
    let server = RabbitServer::start();
    let url = server.url();
    drop(letters(&url, Queue::classic("orders")).await);
    RabbitSource::builder(&url, Queue::classic("repaired")).build().unwrap().declare().await.unwrap();
    are_ready(&url, 3).await;
    let file = tempfile::NamedTempFile::new().unwrap();
    let site = Site { queue: &["--queue", &url, "--name", "orders", "--audit", file.path().to_str().unwrap()] };
    let done = site.dead("redrive", &["--limit", "2", "--to", "repaired", "--reason", "why", "--yes"]).lines();
    assert_eq!(done[2]["put_back"], 2);
    let messages = server.queues("/", "messages");
    assert_eq!((messages["repaired"], messages["orders"]), (2, 0));
    let log = std::fs::read_to_string(file.path()).unwrap();
    assert!(log.contains("at most 2 of 3 dead letters") && log.contains(", into repaired\""), "{log}");
    are_ready(&url, 1).await;
    let missing = site.dead("redrive", &["--limit", "1", "--to", "no queue", "--reason", "why", "--yes"]);
    missing.fails(5, "the queue does not exist");
    are_ready(&url, 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn letters_of_a_rabbitmq_queue_are_removed() {
    let server = RabbitServer::start();
    let url = server.url();
    drop(letters(&url, Queue::classic("orders")).await);
    are_ready(&url, 3).await;
    let site = Site { queue: &["--queue", &url, "--name", "orders"] };
    site.is_discarded();
    are_ready(&url, 2).await;
    assert_eq!(server.queues("/", "messages").get("orders"), Some(&0), "nothing was put back");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_letter_that_a_quorum_queue_may_drop_is_not_read_and_a_bad_queue_is_named() {
    let server = RabbitServer::start();
    let url = server.url();
    let _source = letters(&url, Queue::quorum("orders")).await;
    let site = Site { queue: &["--queue", &url, "--name", "orders", "--assume-delivery-limit", "4"] };
    let mut codes = Vec::new();
    for _ in 0..4 {
        let listed = site.dead("list", &[]);
        codes.push(listed.code);
        if listed.code != 0 {
            listed.fails(6, "--assume-delivery-limit");
        }
        are_ready(&url, 3).await;
    }
    assert_eq!(codes, [0, 0, 6, 6]);
    assert_eq!(site.dead("redrive", &["--limit", "1", "--reason", "why", "--dry-run"]).code, 6);
    let assured = Site { queue: &["--queue", &url, "--name", "orders", "--assume-delivery-limit", "1000000"] };
    are_ready(&url, 3).await;
    assert_eq!(assured.reasons(&[]), REASONS);

    Site { queue: &["--queue", &url, "--name", "invoices"] }.dead("list", &[]).fails(4, "invoices on amqp://");
    let denied = url.replace("guest:guest", "guest:s3cret");
    let denied = Site { queue: &["--queue", &denied, "--name", "orders"] }.dead("list", &[]);
    denied.fails(8, "orders on amqp://guest:***@");
    assert!(!denied.err.contains("s3cret"), "{denied:?}");
}
