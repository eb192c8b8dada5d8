//! Dead letters of Amazon SQS.
use idempotent::mq::{OutboundMessage, Publish, Settlement, Source};
use idempotent::sqs::{SqsPublisher, SqsSource, client};
use idempotent_harness::servers::MotoServer;

use crate::dead::site::{BODIES, REASONS, Site, bury, is_back, next};

#[tokio::test(flavor = "multi_thread")]
async fn letters_of_a_queue_are_listed_shown_put_back_and_removed() {
    let server = MotoServer::start();
    let url = format!("sqs://eu-west-1?endpoint=http://{}", server.address());
    let source = SqsSource::builder(client(&url).unwrap(), "orders").declare();
    let mut source = source.dead_letters("buried").connect().await.unwrap();
    let publisher = SqsPublisher::new(client(&url).unwrap());
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
fn an_unreachable_endpoint_and_an_invalid_url_are_named() {
    let site = Site { queue: &["--queue", "sqs://eu-west-1?endpoint=http://127.0.0.1:1", "--name", "orders"] };
    site.dead("list", &[]).fails(7, "opening the queue");
    let site = Site { queue: &["--queue", "sqs://127.0.0.1:5000", "--name", "orders"] };
    site.dead("list", &[]).fails(2, "use `sqs://REGION`");
}
