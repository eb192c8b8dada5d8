//! The functions of the section on Kafka in `guides/brokers.md`.
use idempotent::kafka::{KafkaDeadLetters, KafkaSource};

const KAFKA: &str = "kafka://localhost";

/// Joins the group `billing` of the topic `orders`. Creates the topics, unless they exist.
async fn source() -> anyhow::Result<KafkaSource> {
    Ok(KafkaSource::builder(KAFKA, "orders", "billing").declare(6).connect().await?)
}

/// Opens the dead letters of the topic, and connects at the first use.
fn letters() -> anyhow::Result<KafkaDeadLetters> {
    Ok(KafkaDeadLetters::new(KAFKA, "orders"))
}
