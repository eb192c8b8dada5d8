//! The example `sqs` and the application `consume`, from outside, on a private emulator.
use idempotent::sqs::{SqsDeadLetters, SqsPublisher, SqsSource, client};
use idempotent_harness::servers::MotoServer;

use crate::brokers::each_published_order_is_charged_once;

mod consume;

#[tokio::test(flavor = "multi_thread")]
async fn each_order_is_charged_once_and_an_unreadable_one_is_dead_lettered() {
    let (server, folder) = (MotoServer::start(), tempfile::tempdir().unwrap());
    let url = format!("sqs://eu-west-1?endpoint=http://{}", server.address());
    let keys = folder.path().join("keys.db").display().to_string();
    let client = client(&url).unwrap();
    SqsSource::builder(client.clone(), "orders").declare().connect().await.unwrap();
    let publisher = (SqsPublisher::new(client.clone()), "orders");
    let letters = SqsDeadLetters::new(client, "orders");
    each_published_order_is_charged_once("sqs", &[&url, &keys], publisher, letters).await;
}
