//! The examples `nats` and `loop_async_nats`, from outside, on private servers.
use idempotent::nats::{JetStreamDeadLetters, JetStreamPublisher, JetStreamSource};
use idempotent_harness::servers::NatsServer;

use crate::brokers::each_published_order_is_charged_once;

#[tokio::test(flavor = "multi_thread")]
async fn each_order_is_charged_once_and_an_unreadable_one_is_dead_lettered() {
    run("nats").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_loop_over_the_client_charges_each_order_once() {
    run("loop_async_nats").await;
}

async fn run(example: &str) {
    let (server, folder) = (NatsServer::start(), tempfile::tempdir().unwrap());
    let keys = folder.path().join("keys.db").display().to_string();
    JetStreamSource::builder(server.url(), "ORDERS", "billing").declare(["orders.>"]).connect().await.unwrap();
    let publisher = (JetStreamPublisher::new(server.url()), "orders.new");
    let letters = JetStreamDeadLetters::new(server.url(), "ORDERS");
    each_published_order_is_charged_once(example, &[&server.url(), &keys], publisher, letters).await;
}
