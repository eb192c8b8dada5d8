//! Dead letters of RocketMQ groups.
use std::time::Duration;

use idempotent::mq::DeadLetters;
use idempotent::rocketmq::{RocketDeadLetters, RocketPublisher, RocketSource};
use idempotent_harness::servers::RocketServer;

use crate::dead::site::{BODIES, REASONS, Site, comes_back, write_letters};

/// Starts a server with three dead letters of the topic `orders` and the group `billing`.
async fn server_with_letters() -> (RocketServer, RocketSource) {
    let server = tokio::task::spawn_blocking(RocketServer::start).await.unwrap();
    let mut source = RocketSource::builder(server.url(), "orders", "billing").build().unwrap();
    source.declare(1).await.unwrap();
    let publisher = RocketPublisher::builder(server.url()).build().unwrap();
    write_letters(&mut source, &publisher, "orders").await;
    are_there(&server, 3).await;
    (server, source)
}

/// Waits until the queue counts this number of letters, which it does a moment after the broker's confirmation.
async fn are_there(server: &RocketServer, letters: u64) {
    let mut dead = RocketDeadLetters::new(server.url(), "orders", "billing").unwrap();
    let wait = async { while dead.count().await.unwrap() != letters {} };
    tokio::time::timeout(Duration::from_secs(60), wait).await.unwrap();
    dead.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn letters_of_a_rocketmq_group_are_listed_shown_put_back_and_removed() {
    let (server, mut source) = server_with_letters().await;
    let url = server.url();
    let site = Site { queue: &["--queue", &url, "--name", "orders", "--group", "billing"] };
    assert_eq!(site.is_listed(), ["m-0", "m-1", "m-2"]);
    site.is_redriven();
    comes_back(&mut source, BODIES[0]).await;

    let one = ["--message-id", "m-2", "--limit", "1", "--reason", "again", "--yes", "--rate", "0", "-o", "table"];
    let done = site.dead("redrive", &one);
    assert!(done.out.ends_with("1 put back, 1 skipped by the conditions, 0 gone\n"), "{done:?}");
    comes_back(&mut source, BODIES[2]).await;
    are_there(&server, 1).await;
    assert_eq!(site.reasons(&[]), [REASONS[1]], "the skipped letter was copied");
    let removed =
        site.dead("discard", &["--message-id", "m-1", "--limit", "1", "--reason", "customer deleted", "--yes"]).lines();
    assert_eq!(removed[1]["discarded"], 1);
    assert!(site.reasons(&[]).is_empty());

    let other = Site { queue: &["--queue", &url, "--name", "orders", "--group", "shipping"] };
    other.dead("list", &[]).fails(7, "orders of shipping on rocketmq://");
}
