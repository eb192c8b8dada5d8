//! The examples `sqs` and `loop_aws_sdk_sqs` and the application `consume`, from outside, on private emulators.
use idempotent::sqs::{SqsDeadLetters, SqsPublisher, SqsSource, client};
use idempotent_harness::servers::MotoServer;

use crate::brokers::each_published_order_is_charged_once;

mod consume;

#[tokio::test(flavor = "multi_thread")]
async fn each_order_is_charged_once_and_an_unreadable_one_is_dead_lettered() {
    run("sqs").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_loop_over_the_client_charges_each_order_once() {
    run("loop_aws_sdk_sqs").await;
}

async fn run(example: &str) {
    let (server, folder) = (MotoServer::start(), tempfile::tempdir().unwrap());
    let url = format!("sqs://eu-west-1?endpoint=http://{}", server.address());
    let keys = folder.path().join("keys.db").display().to_string();
    let client = client(&url).unwrap();
    SqsSource::builder(client.clone(), "orders").declare().connect().await.unwrap();
    let publisher = (SqsPublisher::new(client.clone()), "orders");
    let letters = SqsDeadLetters::new(client, "orders");
    each_published_order_is_charged_once(example, &[&url, &keys], publisher, letters).await;
}
