//! The program that sends a message, from the section on Kafka in `guides/brokers.md`.
use idempotent::kafka::KafkaPublisher;
use idempotent::mq::{OutboundMessage, Publish};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let id = std::env::args().nth(1).unwrap_or("m-17".to_owned());
    let body = std::env::args().nth(2).unwrap_or(r#"{"id": 17, "cents": 500}"#.to_owned());
    let publisher = KafkaPublisher::new("kafka://localhost");
    // the topic, the message id, and the body
    for sent in publisher.publish(&[OutboundMessage::new("orders", id, body)]).await {
        sent?;
    }
    Ok(())
}
