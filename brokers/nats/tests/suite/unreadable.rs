//! Messages at which the client ends its connection. A proxy in its place ends the connection at a harmless message.
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

use idempotent_mq::{
    DeadLetters, KeyFrom, Message, MessageHandler, Messages, Received, Redrive, Settlement, Source, SourceErrorKind,
};
use idempotent_nats::JetStreamDeadLetters;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::world::{Running, World, counting, one, settle, until};

/// The value of a header at which the proxy ends the connection. The answer that contains a message as JSON does not contain it.
const MARKER: &str = "ends-the-connection";

/// Starts a proxy that ends a connection instead of delivering a message with the marker, and returns its address.
async fn ending(server: String) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let server = TcpStream::connect(&server).await.unwrap();
            tokio::spawn(pass(client, server));
        }
    });
    address
}

async fn pass(client: TcpStream, server: TcpStream) {
    let ((mut from_client, mut to_client), (mut from_server, mut to_server)) =
        (client.into_split(), server.into_split());
    let sending = tokio::spawn(async move { tokio::io::copy(&mut from_client, &mut to_server).await });
    let (mut seen, mut chunk) = (Vec::new(), vec![0; 65_536]);
    while let Ok(length @ 1..) = from_server.read(&mut chunk).await {
        seen.extend_from_slice(&chunk[..length]);
        let end = seen.windows(MARKER.len()).position(|part| part == MARKER.as_bytes());
        // What precedes the message arrives, as with the client itself.
        let start = end.and_then(|end| seen[..end].windows(5).rposition(|part| part == b"HMSG "));
        if to_client.write_all(&seen[..start.unwrap_or(seen.len())]).await.is_err() || start.is_some() {
            break;
        }
        seen.clear();
    }
    sending.abort();
}

impl World {
    /// Publishes a message whose header has a second line, which the client accepts and the protocol does not know.
    fn send_folded(&self) {
        self.send_marked("\r\n second");
    }

    fn send_marked(&self, rest: &str) {
        self.server.publish_raw("orders.new", &format!("Nats-Msg-Id: folded\r\ntrace: {MARKER}{rest}"), "body");
    }

    async fn run_behind_the_proxy(&self, handling: MessageHandler) -> (Running, idempotent_mq::ConsumerCounters) {
        let address = ending(self.server.address()).await;
        let source = Self::builder_at(format!("nats://{address}")).connect().await.unwrap();
        let consumer = self.consumer(source).build(handling).unwrap();
        let counters = consumer.counters();
        (Running::new(consumer), counters)
    }
}

#[tokio::test]
async fn a_message_that_ends_the_connection_becomes_a_dead_letter_and_all_others_run() {
    let world = World::new().await;
    drop(world.source().await);
    for number in 0..20 {
        world.send(&number.to_string()).await;
        if number == 5 {
            world.send_folded();
        }
    }
    let (handling, runs) = counting();
    let (running, counters) = world.run_behind_the_proxy(handling).await;
    until("all messages are settled", async || world.open().await == (0, 0)).await;
    assert_eq!(runs.load(SeqCst), 20);
    assert!(counters.counts().source_errors > 0);
    running.ended().await.unwrap();
    let mut letters = JetStreamDeadLetters::new(world.server.url(), "ORDERS");
    assert_eq!(letters.count().await.unwrap(), 1);
}

#[tokio::test]
async fn messages_behind_one_that_ends_each_connection_for_an_unknown_reason_run() {
    let world = World::new().await;
    drop(world.source().await);
    world.send_marked("");
    for number in 0..20 {
        world.send(&number.to_string()).await;
    }
    let (handling, runs) = counting();
    let (running, counters) = world.run_behind_the_proxy(handling).await;
    until("all but one are settled", async || world.open().await == (1, 0)).await;
    assert_eq!(runs.load(SeqCst), 20);
    assert!(counters.counts().source_errors > 0);
    running.ended().await.unwrap();
}

#[tokio::test]
async fn the_error_of_an_unknown_reason_names_the_message_and_the_way_out() {
    let world = World::new().await;
    drop(world.source().await);
    world.send("good").await;
    world.send_marked("");
    let address = ending(world.server.address()).await;
    let mut source = World::builder_at(format!("nats://{address}")).connect().await.unwrap();
    let held = one(&mut source).await;
    settle(&source.settler(), &held, Settlement::Ack).await;
    let error = loop {
        match source.receive(8).await {
            Ok(Received::Deliveries(none)) => assert!(none.is_empty()),
            Ok(other) => panic!("{other:?}"),
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind(), SourceErrorKind::Transient);
    let parts =
        ["the connection was lost 2 times", "first one that is not acknowledged is 2", "`nats stream rmm ORDERS 2`"];
    assert!(parts.iter().all(|part| error.to_string().contains(part)), "{error}");
}

#[tokio::test]
async fn a_redriven_message_that_ended_the_connection_arrives_with_its_headers_in_encoded_form() {
    let world = World::new().await;
    drop(world.source().await);
    world.send_folded();
    let (handling, runs) = counting();
    let (running, _) = world.run_behind_the_proxy(handling).await;
    until("the message is settled", async || world.open().await == (0, 0)).await;
    running.ended().await.unwrap();
    assert_eq!(runs.load(SeqCst), 0);

    let redriven = Redrive::new().run(&mut JetStreamDeadLetters::new(world.server.url(), "ORDERS")).await;
    assert_eq!(redriven.put_back, 1, "{redriven:?}");
    let seen = Arc::<AtomicU32>::default();
    let counted = seen.clone();
    let handling = Messages::raw().keyed(KeyFrom::message_id()).run(move |message: Message<()>| {
        let headers = &message.delivery.headers;
        let line = headers.first("").map(<[u8]>::to_vec);
        let is_whole = line.as_deref() == Some(&b" second"[..]) && message.delivery.body == b"body";
        counted.fetch_add(u32::from(is_whole && message.delivery.id.as_deref() == Some("folded")), SeqCst);
        async { Ok::<_, String>(()) }
    });
    let running = world.run(world.source().await, handling);
    until("the message is settled", async || world.open().await == (0, 0)).await;
    running.ended().await.unwrap();
    assert_eq!(seen.load(SeqCst), 1);
}
