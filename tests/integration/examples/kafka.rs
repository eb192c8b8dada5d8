//! The example `kafka` and the application `consume`, from outside, on a private broker.
use idempotent::kafka::{KafkaDeadLetters, KafkaPublisher, KafkaSource};
use idempotent_harness::servers::KafkaServer;

use crate::brokers::each_published_order_is_charged_once;

mod consume;
mod guide;

#[tokio::test(flavor = "multi_thread")]
async fn each_order_is_charged_once_and_an_unreadable_one_is_dead_lettered() {
    let (server, folder) = (KafkaServer::start(), tempfile::tempdir().unwrap());
    let keys = folder.path().join("keys.db").display().to_string();
    KafkaSource::builder(server.url(), "orders", "other").declare(2).connect().await.unwrap();
    let publisher = (KafkaPublisher::new(server.url()), "orders");
    let letters = KafkaDeadLetters::new(server.url(), "orders");
    each_published_order_is_charged_once("kafka", &[&server.url(), &keys], publisher, letters).await;
}
