//! Dead letters of PGMQ.
use idempotent::mq::{OutboundMessage, Publish, Settlement, Source};
use idempotent::pgmq::{PgmqPublisher, PgmqSource};
use idempotent_harness::servers::PostgresServer;

use crate::dead::site::{BODIES, REASONS, Site, bury, is_back, next};

#[tokio::test(flavor = "multi_thread")]
async fn letters_of_a_queue_are_listed_shown_put_back_and_removed() {
    let server = PostgresServer::start();
    server.install_pgmq("postgres");
    let url = server.url().replacen("postgres://", "pgmq://", 1);
    let source = PgmqSource::builder(&*url, "orders").declare().dead_letters("buried");
    let mut source = source.connect().await.unwrap();
    let publisher = PgmqPublisher::new(&*url).exact_bodies();
    for (number, body) in BODIES.iter().enumerate() {
        let message = OutboundMessage::new("orders", format!("m-{number}"), *body).header("trace", *b"secret");
        publisher.publish(&[message]).await.remove(0).unwrap();
        bury(&mut source, REASONS[number], None).await;
    }
    let missing = Site { queue: &["--queue", &url, "--name", "orders"] };
    missing.dead("list", &[]).fails(5, "orders_dead");
    let site = Site { queue: &["--queue", &url, "--name", "orders", "--dead-stream", "buried"] };
    assert_eq!(site.is_listed(), ["m-0", "m-1", "m-2"]);
    site.is_redriven();
    let (delivery, tag) = next(&mut source).await;
    is_back(&delivery, BODIES[0]);
    source.settler().settle(&delivery, &tag, &Settlement::Ack).await.unwrap();
    let discarded = site.dead("discard", &["--message-id", "m-2", "--limit", "1", "--reason", "why", "--yes"]).lines();
    assert_eq!(discarded[0]["outcome"], "done");
    assert_eq!(site.reasons(&[]), REASONS[1..2]);
}

#[test]
fn an_unreachable_server_is_named() {
    let site = Site { queue: &["--queue", "pgmq://app@127.0.0.1:1/shop", "--name", "orders"] };
    site.dead("list", &[]).fails(7, "opening the queue");
}
