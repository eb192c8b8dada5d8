//! A broker that accepts connections and never answers, and one that stops answering.
use std::net::TcpListener;

use idempotent_mq::{OutboundMessage, PublishErrorKind};
use idempotent_rabbitmq::RabbitPublisher;
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy, copy_bidirectional};
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

/// Forwards connections to the broker. The first one is silent from its first message on.
async fn broker_that_stops_answering() -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = SERVER.url().rsplit('@').next().unwrap().split('/').next().unwrap().to_owned();
    let url = format!("{}?heartbeat=0", SERVER.url().replace(&server, &listener.local_addr().unwrap().to_string()));
    tokio::spawn(async move {
        let (mut first, _) = listener.accept().await.unwrap();
        let mut to = tokio::net::TcpStream::connect(&server).await.unwrap();
        tokio::spawn(async move {
            let ((mut requests, mut answers), (mut replies, mut sent)) = (first.split(), to.split());
            let until_silent = async {
                let mut read = vec![0; 1 << 16];
                loop {
                    let length = requests.read(&mut read).await.unwrap();
                    if length == 0 || read[..length].windows(8).any(|part| part == b"an order") {
                        return;
                    }
                    sent.write_all(&read[..length]).await.unwrap();
                }
            };
            tokio::select! {
                () = until_silent => {}
                _ = copy(&mut replies, &mut answers) => {}
            }
            std::future::pending::<()>().await;
        });
        while let Ok((mut next, _)) = listener.accept().await {
            let mut to = tokio::net::TcpStream::connect(&server).await.unwrap();
            tokio::spawn(async move { copy_bidirectional(&mut next, &mut to).await });
        }
    });
    url
}

#[tokio::test]
async fn a_connection_on_which_the_broker_stops_answering_is_replaced() {
    let world = World::new("silent").await;
    world.declare("silent").await;
    let url = broker_that_stops_answering().await;
    let publisher = RabbitPublisher::builder(&url).confirm_within(ms(2_000)).give_up_after(ms(15_000)).build().unwrap();
    publisher.publish(&OutboundMessage::new("silent", "m", "an order")).await.unwrap();
    assert_eq!(world.count("silent").await, 1);
}
