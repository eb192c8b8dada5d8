//! HTTP/2: 100 streams of one connection.
use std::future::poll_fn;

use axum::http::Request;
use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use h2::client::{ResponseFuture, SendRequest};
use h2::{Reason, SendStream};
use tokio::net::TcpStream;

use crate::sockets::support::{Answer, Backing, Client, Server, on_each_store, soon, until};

const STREAMS: usize = 100;

on_each_store! {
    of_100_streams_with_one_key_one_runs_and_99_receive_409;
    a_hundred_streams_with_different_keys_run_once_each;
}

async fn connect(server: &Server) -> SendRequest<Bytes> {
    let stream = TcpStream::connect(server.address).await.unwrap();
    stream.set_nodelay(true).unwrap();
    let (requests, connection) = h2::client::handshake(stream).await.unwrap();
    tokio::spawn(connection);
    requests
}

/// The stream of its body.
async fn begin(requests: &SendRequest<Bytes>, key: &str, sku: &str, hold: u64) -> (ResponseFuture, SendStream<Bytes>) {
    let request = Request::post("http://localhost/orders").header("idempotency-key", key).header("x-sku", sku);
    let request = request.header("x-hold", hold).body(()).unwrap();
    let mut ready = soon("a stream", requests.clone().ready()).await.unwrap();
    ready.send_request(request, false).unwrap()
}

/// Sends the body of each stream except for its last byte, and then all last bytes.
async fn volley(
    requests: &SendRequest<Bytes>,
    ask: impl Fn(usize) -> (String, String),
    hold: u64,
) -> Vec<ResponseFuture> {
    let mut streams = Vec::new();
    for number in 0..STREAMS {
        let (key, sku) = ask(number);
        let (response, mut body) = begin(requests, &key, &sku, hold).await;
        body.send_data(Bytes::from_static(b"qty="), false).unwrap();
        streams.push((response, body));
    }
    for (_, body) in &mut streams {
        body.send_data(Bytes::from_static(b"1"), true).unwrap();
    }
    streams.into_iter().map(|(response, _)| response).collect()
}

async fn answer(response: ResponseFuture) -> Answer {
    let (head, mut body) = soon("an answer", response).await.unwrap().into_parts();
    let text = |value: &axum::http::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    let headers = head.headers.iter().map(|(name, value)| (name.as_str().to_owned(), text(value))).collect();
    let mut answer = Answer { status: head.status.as_u16(), headers, body: Vec::new(), head: Vec::new() };
    while let Some(data) = soon("a body", body.data()).await {
        let data = data.unwrap();
        body.flow_control().release_capacity(data.len()).unwrap();
        answer.body.extend(data);
    }
    answer
}

async fn of_100_streams_with_one_key_one_runs_and_99_receive_409(backing: &Backing) {
    let server = Server::on(backing, |layer| layer).await;
    let requests = connect(&server).await;
    for round in 1..=10 {
        let (key, sku) = (format!("key-{round}"), format!("sku-{round}"));
        let responses = volley(&requests, |_| (key.clone(), sku.clone()), round).await;
        let mut answers: FuturesUnordered<_> = responses.into_iter().map(answer).collect();
        for _ in 1..STREAMS {
            answers.next().await.unwrap().is(409, "in-flight");
        }
        assert_eq!(server.shop.count(&sku), 1);
        server.shop.open(round);
        let order = answers.next().await.unwrap().made();
        let (retry, mut body) = begin(&requests, &key, &sku, 0).await;
        body.send_data(Bytes::from_static(b"qty=1"), true).unwrap();
        assert_eq!(answer(retry).await.replayed(), order);
        assert_eq!(server.shop.count(&sku), 1, "round {round}");
    }
}

/// All handlers run at once, and none blocks another.
async fn a_hundred_streams_with_different_keys_run_once_each(backing: &Backing) {
    let server = Server::on(backing, |layer| layer).await;
    let requests = connect(&server).await;
    let ask = |number| (format!("k{number}"), format!("sku{number}"));
    let responses = volley(&requests, ask, 1).await;
    until("all run", async || server.shop.total() == STREAMS).await;
    server.shop.open(1);
    let mut orders = Vec::new();
    for response in responses {
        orders.push(answer(response).await.made());
    }
    for (response, order) in volley(&requests, ask, 0).await.into_iter().zip(orders) {
        assert_eq!(answer(response).await.replayed(), order);
    }
    let counts = server.shop.counts();
    assert!(counts.len() == STREAMS && counts.values().all(|count| *count == 1), "{counts:?}");
}

/// A reset stream counts as a disconnect. The connection and its other streams continue.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_completes_after_its_stream_is_reset() {
    let server = Server::start().await;
    let requests = connect(&server).await;
    let (response, mut body) = begin(&requests, "k", "lamp", 1).await;
    body.send_data(Bytes::from_static(b"qty=1"), true).unwrap();
    until("it runs", async || server.shop.count("lamp") == 1).await;
    body.send_reset(Reason::CANCEL);
    drop(response);
    until("the server notices", async || server.shop.unanswered() == 1).await;
    server.shop.open(1);
    until("it is recorded", async || server.executor.counts().of("ran") == 1).await;
    let (retry, mut body) = begin(&requests, "k", "lamp", 0).await;
    body.send_data(Bytes::from_static(b"qty=1"), true).unwrap();
    answer(retry).await.replayed();
    assert_eq!((server.shop.count("lamp"), server.shop.cut_off()), (1, 0));
    // The same request over HTTP/1.1 is a duplicate as well.
    let ask = crate::sockets::support::Ask::order("k", "lamp").body("qty=1");
    Client::connect(server.address).await.ask(&ask).await.replayed();
    assert_eq!(server.shop.count("lamp"), 1);
}

/// The stream of a rejected request ends in order, even if the client sends its body first.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rejected_upload_is_read_to_its_end_without_a_stream_reset() {
    let server = Server::start().await;
    let requests = connect(&server).await;
    for _ in 0..20 {
        let request = Request::post("http://localhost/orders").body(()).unwrap();
        let mut ready = soon("a stream", requests.clone().ready()).await.unwrap();
        let (response, mut body) = ready.send_request(request, false).unwrap();
        let mut left = 200 << 10;
        while left > 0 {
            body.reserve_capacity(left);
            let room = soon("room to write", poll_fn(|cx| body.poll_capacity(cx))).await;
            let room = room.expect("the stream lives").unwrap().min(left);
            left -= room;
            body.send_data(vec![7; room].into(), left == 0).unwrap();
        }
        let refused = answer(response).await;
        refused.is(400, "missing-key");
        assert_eq!(refused.header("connection"), None);
    }
    assert_eq!((server.shop.total(), server.executor.counts().deliveries()), (0, 0));
}
