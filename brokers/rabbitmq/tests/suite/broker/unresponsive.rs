//! Brokers that never answer, stop answering, or end a connection.
use std::net::TcpListener;

use idempotent_mq::{OutboundMessage, Publish, PublishErrorKind};
use idempotent_rabbitmq::RabbitPublisher;
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy, copy_bidirectional};
use tokio::net::TcpStream;
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

/// The end of the first connection to a forwarder.
#[derive(Clone, Copy)]
enum End {
    /// Neither side gets any more bytes.
    Silence,
    /// The same, and the forwarder accepts no further connection.
    SilenceForGood,
    Close,
}

/// Forwards connections to the broker, and ends the first one before bytes of the client that contain `marker`.
async fn broker_that_fails_at(marker: &'static [u8], end: End) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = SERVER.url().rsplit('@').next().unwrap().split('/').next().unwrap().to_owned();
    let forwarder = listener.local_addr().unwrap().to_string();
    let url = format!("{}?heartbeat=0", SERVER.url().replace(&server, &forwarder));
    tokio::spawn(async move {
        let (mut first, _) = listener.accept().await.unwrap();
        let mut to = TcpStream::connect(&server).await.unwrap();
        let listener = if let End::SilenceForGood = end { None } else { Some(listener) };
        tokio::spawn(async move {
            let ((mut requests, mut answers), (mut replies, mut sent)) = (first.split(), to.split());
            let until_marker = async {
                let mut read = vec![0; 1 << 16];
                loop {
                    let length = requests.read(&mut read).await.unwrap();
                    if length == 0 || read[..length].windows(marker.len()).any(|part| part == marker) {
                        return;
                    }
                    sent.write_all(&read[..length]).await.unwrap();
                }
            };
            tokio::select! {
                () = until_marker => {}
                _ = copy(&mut replies, &mut answers) => {}
            }
            if !matches!(end, End::Close) {
                std::future::pending::<()>().await;
            }
        });
        while let Some(listener) = &listener {
            let (mut next, _) = listener.accept().await.unwrap();
            let mut to = TcpStream::connect(&server).await.unwrap();
            tokio::spawn(async move { copy_bidirectional(&mut next, &mut to).await });
        }
    });
    url
}

#[tokio::test]
async fn a_connection_on_which_the_broker_stops_answering_is_replaced() {
    let world = World::new("silent").await;
    world.declare("silent").await;
    let url = broker_that_fails_at(b"an order", End::Silence).await;
    let publisher = RabbitPublisher::builder(&url).confirm_within(ms(2_000)).give_up_after(ms(15_000)).build().unwrap();
    publisher.publish(&OutboundMessage::new("silent", "m", "an order")).await.unwrap();
    assert_eq!(world.count("silent").await, 1);
}

#[tokio::test]
async fn a_batch_without_an_answer_may_be_stored_even_if_the_broker_is_then_down() {
    let world = World::new("silent-batch").await;
    world.declare("silent-batch").await;
    let url = broker_that_fails_at(b"an order", End::SilenceForGood).await;
    let publisher = RabbitPublisher::builder(&url).confirm_within(ms(500)).give_up_after(ms(3_000)).build().unwrap();
    // The messages of a batch share a channel after a first message.
    publisher.publish(&OutboundMessage::new("silent-batch", "m", "the first")).await.unwrap();
    let batch = ["a", "b"].map(|id| OutboundMessage::new("silent-batch", id, "an order"));
    for sent in Publish::publish(&publisher, &batch).await {
        assert_eq!(sent.unwrap_err().kind(), PublishErrorKind::Unconfirmed);
    }
}

#[tokio::test]
async fn a_connection_that_ends_while_a_delay_is_bound_does_not_refuse_the_message() {
    let world = World::new("cut-binding").await;
    world.declare("cut-binding").await;
    let url = broker_that_fails_at(b"cut-binding", End::Close).await;
    let publisher = RabbitPublisher::builder(&url).build().unwrap();
    publisher.publish_after(&OutboundMessage::new("cut-binding", "m", ""), ms(100)).await.unwrap();
}
