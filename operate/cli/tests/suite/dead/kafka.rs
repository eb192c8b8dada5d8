//! Dead letters of Kafka.
use idempotent::kafka::{KafkaPublisher, KafkaSource};
use idempotent::mq::{OutboundMessage, Publish, Settlement, Source};
use idempotent_harness::servers::KafkaServer;

use crate::dead::site::{BODIES, REASONS, Site, bury, is_back, next};

#[tokio::test(flavor = "multi_thread")]
async fn letters_of_a_topic_are_listed_shown_put_back_and_removed() {
    let server = KafkaServer::start();
    let url = server.url();
    let source = KafkaSource::builder(&*url, "orders", "billing").declare(1);
    let mut source = source.dead_letters("buried").connect().await.unwrap();
    let publisher = KafkaPublisher::new(&*url);
    for (number, body) in BODIES.iter().enumerate() {
        let message = OutboundMessage::new("orders", format!("m-{number}"), *body).header("trace", *b"secret");
        publisher.publish(&[message]).await.remove(0).unwrap();
        bury(&mut source, REASONS[number], None).await;
    }
    let missing = Site { queue: &["--queue", &url, "--name", "orders"] };
    missing.dead("list", &[]).fails(5, "orders-dead");
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
fn an_unreachable_broker_is_named() {
    let site = Site { queue: &["--queue", "kafka://127.0.0.1:1", "--name", "orders"] };
    site.dead("list", &[]).fails(7, "connecting");
}
