//! RabbitMQ: the examples `orders` and `loop_lapin` from outside, and an outbox through the facade.
use idempotent::rabbitmq::{Queue, RabbitDeadLetters, RabbitPublisher, RabbitSource};
use idempotent_harness::servers::RabbitServer;

use crate::brokers::each_published_order_is_charged_once;
use crate::example::Running;

mod outbox;

#[test]
fn each_order_is_paid_once_and_sigterm_ends_what_runs() {
    let server = RabbitServer::start();
    let mut running = Running::start("orders", &["--broker", "rabbitmq", "--url", &server.url(), "--queue", "orders"]);
    let early = running.says(4);
    let place = |line: &str| early.iter().position(|seen| seen == line).unwrap_or_else(|| panic!("{line}: {early:?}"));
    place("order-1: paid 500 cents");
    place("order-2: paid 500 cents");
    // A retry's delay is anywhere between nothing and a second: other orders may be paid before or after it.
    assert!(place("early: does not exist yet, retry") < place("early: paid 500 cents"), "{early:?}");
    let put_aside = || server.queues("/", "messages_ready").get("orders.dead") == Some(&1);
    crate::wait::until("the odd one is a dead letter", put_aside);
    running.signal("-TERM");
    let rest = running.ends();
    assert_eq!(rest[0], "stopping: running handlers may finish");
    assert!(rest[1].contains("1 dead-lettered"), "{rest:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_loop_over_the_client_charges_each_order_once() {
    let (server, folder) = (RabbitServer::start(), tempfile::tempdir().unwrap());
    let keys = folder.path().join("keys.db").display().to_string();
    let source = RabbitSource::builder(server.url(), Queue::classic("orders")).build().unwrap();
    source.declare().await.unwrap();
    let policy = r#"{"dead-letter-exchange": "", "dead-letter-routing-key": "orders.dead"}"#;
    server.ctl(&["set_policy", "orders", "^orders$", policy]);
    let publisher = (RabbitPublisher::builder(server.url()).build().unwrap(), "orders");
    let letters = RabbitDeadLetters::new(server.url(), "orders").unwrap();
    each_published_order_is_charged_once("loop_lapin", &[&server.url(), &keys], publisher, letters).await;
}
