//! The examples `kafka` and `loop_rdkafka` and the application `consume`, from outside, on private brokers.
use idempotent::kafka::{KafkaDeadLetters, KafkaPublisher, KafkaSource};
use idempotent_harness::servers::KafkaServer;

use crate::brokers::each_published_order_is_charged_once;

mod consume;
mod guide;

#[tokio::test(flavor = "multi_thread")]
async fn each_order_is_charged_once_and_an_unreadable_one_is_dead_lettered() {
    let server = KafkaServer::start();
    run("kafka", &server, &server.url()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_loop_over_the_client_charges_each_order_once() {
    let server = KafkaServer::start();
    run("loop_rdkafka", &server, &server.address()).await;
}

async fn run(example: &str, server: &KafkaServer, url: &str) {
    let folder = tempfile::tempdir().unwrap();
    let keys = folder.path().join("keys.db").display().to_string();
    KafkaSource::builder(server.url(), "orders", "other").declare(2).connect().await.unwrap();
    let publisher = (KafkaPublisher::new(server.url()), "orders");
    let letters = KafkaDeadLetters::new(server.url(), "orders");
    each_published_order_is_charged_once(example, &[url, &keys], publisher, letters).await;
}
