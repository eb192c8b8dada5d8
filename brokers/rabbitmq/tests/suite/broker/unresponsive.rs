//! Brokers that never answer, or stop answering.
use std::net::TcpListener;

use idempotent_harness::proxy::{Fault, Proxy};
use idempotent_mq::{OutboundMessage, Publish, PublishErrorKind};
use idempotent_rabbitmq::RabbitPublisher;
use tokio::sync::mpsc::{self, UnboundedReceiver};

use crate::broker::world::{SERVER, World, ms, within};

/// Returns a URL, and a channel with the number of each new connection.
fn unresponsive_broker() -> (String, UnboundedReceiver<usize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("amqp://guest:guest@{}/%2f", listener.local_addr().unwrap());
    let (accepted, connections) = mpsc::unbounded_channel();
    std::thread::spawn(move || {
        let mut open = Vec::new();
        for connection in listener.incoming() {
            open.push(connection.unwrap());
            if accepted.send(open.len()).is_err() {
                return;
            }
        }
    });
    (url, connections)
}

#[tokio::test]
async fn calls_that_give_up_during_a_handshake_share_the_handshake() {
    let (url, mut connections) = unresponsive_broker();
    let publisher = RabbitPublisher::builder(&url).confirm_within(ms(50)).give_up_after(ms(50)).build().unwrap();
    let publish = async || publisher.publish(&OutboundMessage::new("orders", "m", "{}")).await.unwrap_err();
    assert_eq!(publish().await.kind(), PublishErrorKind::Unsent);
    assert_eq!(within("a connection", connections.recv()).await, Some(1));
    for _ in 0..3 {
        assert_eq!(publish().await.kind(), PublishErrorKind::Unsent);
    }
    assert!(connections.try_recv().is_err(), "a second handshake began during the first");
}

#[tokio::test]
async fn an_unanswered_handshake_is_started_again_after_its_limit() {
    let (url, mut connections) = unresponsive_broker();
    // The limit of a handshake is 10 s.
    let publisher = RabbitPublisher::builder(&url).give_up_after(ms(120_000)).build().unwrap();
    let message = OutboundMessage::new("orders", "m", "{}");
    let second = async {
        connections.recv().await;
        connections.recv().await
    };
    tokio::select! {
        published = publisher.publish(&message) => panic!("ended before the second handshake: {published:?}"),
        number = second => assert_eq!(number, Some(2)),
    }
}

async fn proxied() -> (Proxy, String) {
    let proxy = Proxy::start(&SERVER.address()).await;
    let url = SERVER.url().replace(&SERVER.address(), &proxy.address());
    // Without heartbeats, nothing but the missing confirm shows that the broker is silent.
    (proxy, format!("{url}?heartbeat=0"))
}

#[tokio::test]
async fn a_connection_on_which_the_broker_stops_answering_is_replaced() {
    let world = World::new("stopped-answering").await;
    world.declare("stopped-answering").await;
    let (proxy, url) = proxied().await;
    proxy.fail_next_with("an order", Fault::HalfOpen);
    let publisher = RabbitPublisher::builder(&url).confirm_within(ms(2_000)).give_up_after(ms(15_000)).build().unwrap();
    publisher.publish(&OutboundMessage::new("stopped-answering", "m", "an order")).await.unwrap();
    assert_eq!(world.count("stopped-answering").await, 1);
}

#[tokio::test]
async fn a_batch_without_an_answer_may_be_stored_even_if_the_broker_is_then_down() {
    let world = World::new("silent-batch").await;
    world.declare("silent-batch").await;
    let (proxy, url) = proxied().await;
    let publisher = RabbitPublisher::builder(&url).confirm_within(ms(500)).give_up_after(ms(3_000)).build().unwrap();
    // The messages of a batch share a channel after a first message.
    publisher.publish(&OutboundMessage::new("silent-batch", "m", "the first")).await.unwrap();
    proxy.fail_next_with("an order", Fault::HalfOpen);
    proxy.refuse();
    let batch = ["a", "b"].map(|id| OutboundMessage::new("silent-batch", id, "an order"));
    for sent in Publish::publish(&publisher, &batch).await {
        assert_eq!(sent.unwrap_err().kind(), PublishErrorKind::Unconfirmed);
    }
}
