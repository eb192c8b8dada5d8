//! Dead letters of delay queues.
use std::time::Duration;

use idempotent::delay_queue::{DelayMessage, DelayQueue, DelaySource};
use idempotent_harness::servers::RedisServer;

use crate::dead::site::{BODIES, REASONS, Site, bury, comes_back};

#[tokio::test(flavor = "multi_thread")]
async fn letters_of_a_delay_queue_are_listed_shown_put_back_and_removed() {
    let server = RedisServer::start();
    let queue = DelayQueue::builder(server.url(), "orders").namespace("shop").connect().await.unwrap();
    let mut source = DelaySource::new(&queue);
    for (number, body) in BODIES.iter().enumerate() {
        let message = DelayMessage::after(Duration::ZERO, *body).id(format!("m-{number}")).header("trace", *b"secret");
        queue.send(&message).await.unwrap();
        bury(&mut source, REASONS[number], None).await;
    }
    let url = server.url().replacen("redis://", "redis+delay://", 1);
    let site = Site { queue: &["--queue", &url, "--name", "orders", "--namespace", "shop"] };
    assert_eq!(site.is_listed(), ["m-0", "m-1", "m-2"]);
    site.is_redriven();
    comes_back(&mut source, BODIES[0]).await;
    let one = ["--message-id", "m-2", "--limit", "1", "--reason", "again", "--yes"];
    assert_eq!(site.dead("redrive", &one).lines()[1]["put_back"], 1);
    comes_back(&mut source, BODIES[2]).await;
    assert_eq!(site.reasons(&[]), REASONS[1..2]);

    for (number, body) in BODIES.iter().enumerate() {
        let message = DelayMessage::after(Duration::ZERO, *body).id(format!("n-{number}"));
        queue.send(&message).await.unwrap();
        bury(&mut source, REASONS[number], None).await;
    }
    site.dead("discard", &["--message-id", "m-1", "--limit", "1", "--reason", "why", "--yes"]).lines();
    site.is_discarded();
    assert_eq!(queue.counts().await.unwrap().dead, 2);

    server.command(&["CONFIG", "SET", "requirepass", "s3cret"]);
    site.dead("list", &[]).fails(8, "NOAUTH");
}
