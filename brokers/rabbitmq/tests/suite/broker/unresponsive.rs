//! A broker that accepts connections and never answers.
use std::net::TcpListener;

use idempotent_mq::{OutboundMessage, PublishErrorKind};
use idempotent_rabbitmq::RabbitPublisher;
use tokio::sync::mpsc::{self, UnboundedReceiver};

use crate::broker::world::{ms, within};

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
