//! The responses of the layer as hyper writes them to a socket, byte by byte.
use axum::Router;
use axum::body::Body;
use axum::response::Response;
use axum::routing::post;
use bytes::Bytes;
use futures_util::stream;
use idempotent_core::{Executor, MemoryStore, SystemClock};
use idempotent_tower::{IdempotencyLayer, ResponseRules};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::layer::support::{Shop, by_user};

/// Starts a server that stops with the runtime of the test, and returns its address.
async fn serve(app: Router) -> std::net::SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, app).await });
    address
}

fn layer() -> IdempotencyLayer {
    IdempotencyLayer::new(Executor::new(MemoryStore::new()), by_user())
}

fn shop() -> Shop {
    Shop::behind(layer(), SystemClock::default())
}

/// Reads until the server closes the connection.
pub(crate) async fn raw(address: std::net::SocketAddr, request: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(request).await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    answer.iter().map(|byte| char::from(*byte)).collect()
}

fn request(headers: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!(
        "POST /orders HTTP/1.1\r\nhost: shop\r\nconnection: close\r\n{headers}content-length: {length}\r\n\r\n{body}"
    )
    .into()
}

#[tokio::test]
async fn a_replay_differs_on_the_wire_only_by_its_mark() {
    let handler = async || {
        Response::builder()
            .status(201)
            .header("x-b", "1")
            .header("location", "/orders/1")
            .header("x-b", "2")
            .header("set-cookie", "a=b")
            .header("x-latin", &b"\xe4"[..])
            .body(Body::from(&b"\x00\xff{}"[..]))
            .unwrap()
    };
    let address = serve(Router::new().route("/orders", post(handler)).layer(layer())).await;
    let ask = request("idempotency-key: a\r\n", "{}");
    let (first, second) = (raw(address, &ask).await, raw(address, &ask).await);
    let [first, second] = [&first, &second].map(|answer| {
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let lines: Vec<_> = head.split("\r\n").filter(|line| !line.starts_with("date: ")).map(str::to_owned).collect();
        (lines, body.to_owned())
    });
    assert_eq!(first.1, second.1);
    let wanted =
        ["HTTP/1.1 201 Created", "x-b: 1", "x-b: 2", "location: /orders/1", "x-latin: \u{e4}", "content-length: 4"];
    let sorted = |lines: &[String], drop: &[&str]| {
        let mut lines: Vec<_> =
            lines.iter().filter(|line| !drop.iter().any(|drop| line.starts_with(drop))).cloned().collect();
        lines.sort();
        lines
    };
    let drop = ["connection", "set-cookie", "idempotent-replayed"];
    let mut all: Vec<_> = wanted.map(str::to_owned).to_vec();
    all.sort();
    assert_eq!(sorted(&first.0, &drop), all);
    assert_eq!(sorted(&second.0, &drop), all);
    let order = |lines: &[String]| {
        lines.iter().filter(|line| line.starts_with("x-") || line.starts_with("loc")).cloned().collect::<Vec<_>>()
    };
    assert_eq!(order(&first.0), order(&second.0));
    assert!(first.0.contains(&"set-cookie: a=b".to_owned()));
    assert!(second.0.contains(&"idempotent-replayed: true".to_owned()));
    assert!(!second.0.iter().any(|line| line.starts_with("set-cookie")));
}

#[tokio::test]
async fn two_field_lines_on_the_wire_are_rejected_whatever_their_case() {
    let address = serve(shop().router()).await;
    let answer = raw(address, &request("Idempotency-Key: a\r\nIDEMPOTENCY-KEY: a\r\n", "{}")).await;
    assert!(answer.starts_with("HTTP/1.1 400 ") && answer.contains("\"invalid-key\""), "{answer}");
}

#[tokio::test]
async fn chunked_and_sized_bodies_are_one_request() {
    let shop = shop();
    let address = serve(shop.router()).await;
    let sized = raw(address, &request("idempotency-key: a\r\n", "hello world")).await;
    assert!(sized.starts_with("HTTP/1.1 201 "), "{sized}");
    let chunked = b"POST /orders HTTP/1.1\r\nhost: shop\r\nconnection: close\r\nidempotency-key: a\r\n\
        transfer-encoding: chunked\r\n\r\n5\r\nhello\r\n6;x=y\r\n world\r\n0\r\nx-trailer: 1\r\n\r\n";
    let replay = raw(address, chunked).await;
    assert!(replay.contains("idempotent-replayed: true"), "{replay}");
    assert_eq!(shop.runs(), 1);
}

#[tokio::test]
async fn an_oversized_upload_receives_a_response_and_claims_nothing() {
    let shop = shop();
    let address = serve(shop.router()).await;
    // The response precedes the body: only the head was sent.
    let head = "POST /orders HTTP/1.1\r\nhost: shop\r\nidempotency-key: a\r\ncontent-length: 3000000\r\n\r\n";
    let answer = raw(address, head.as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 413 ") && answer.contains("body-too-large"), "{answer}");
    let answer = raw(address, &request("idempotency-key: a\r\n", "{}")).await;
    assert!(answer.starts_with("HTTP/1.1 201 ") && !answer.contains("replayed"), "{answer}");
}

#[tokio::test]
async fn an_upload_that_is_cut_off_claims_nothing() {
    let shop = shop();
    let address = serve(shop.router()).await;
    let mut stream = TcpStream::connect(address).await.unwrap();
    let head = "POST /orders HTTP/1.1\r\nhost: shop\r\nidempotency-key: a\r\ncontent-length: 10\r\n\r\nhalf";
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.shutdown().await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    assert_eq!(shop.runs(), 0);
    let answer = raw(address, &request("idempotency-key: a\r\n", "{}")).await;
    assert!(answer.starts_with("HTTP/1.1 201 ") && !answer.contains("replayed"), "{answer}");
}

#[tokio::test]
async fn a_stream_is_sent_in_chunks_and_its_duplicate_learns_of_its_completion() {
    let handler = async || {
        let pieces = ["one", "two"].map(|piece| Ok::<_, std::io::Error>(Bytes::from_static(piece.as_bytes())));
        Response::new(Body::from_stream(stream::iter(pieces)))
    };
    let address = serve(Router::new().route("/orders", post(handler)).layer(layer())).await;
    let ask = request("idempotency-key: a\r\n", "{}");
    let first = raw(address, &ask).await;
    assert!(first.contains("transfer-encoding: chunked") && first.contains("3\r\none\r\n3\r\ntwo\r\n0\r\n"), "{first}");
    let second = raw(address, &ask).await;
    assert!(second.starts_with("HTTP/1.1 409 ") && second.contains("response-not-retained"), "{second}");
}

#[tokio::test]
async fn trailers_reach_the_client_even_from_a_buffered_body_and_a_replay() {
    let handler = async || {
        let trailers = http::HeaderMap::from_iter([(http::HeaderName::from_static("x-sum"), "7".parse().unwrap())]);
        let frames = [http_body::Frame::data(Bytes::from_static(b"ab")), http_body::Frame::trailers(trailers)];
        let body = http_body_util::StreamBody::new(stream::iter(frames.map(Ok::<_, std::io::Error>)));
        Response::builder().header("trailer", "x-sum").body(Body::new(body)).unwrap()
    };
    let rules = ResponseRules::default().buffer_unknown(true);
    let address = serve(Router::new().route("/orders", post(handler)).layer(layer().response(rules))).await;
    let ask = request("te: trailers\r\nidempotency-key: a\r\n", "{}");
    for replayed in [false, true] {
        let answer = raw(address, &ask).await;
        assert!(answer.ends_with("2\r\nab\r\n0\r\nx-sum: 7\r\n\r\n"), "{answer}");
        assert_eq!(answer.contains("idempotent-replayed"), replayed);
    }
}

#[tokio::test]
async fn a_response_without_a_body_is_replayed_without_one() {
    let app = Router::new().route("/orders", post(async || http::StatusCode::NO_CONTENT)).layer(layer());
    let address = serve(app).await;
    let ask = request("idempotency-key: a\r\n", "{}");
    for replayed in [false, true] {
        let answer = raw(address, &ask).await;
        assert_eq!(answer.contains("idempotent-replayed"), replayed);
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 204 ") && body.is_empty() && !head.contains("content-length"), "{answer}");
    }
}

#[tokio::test]
async fn hostile_bytes_in_the_key_yield_400_only() {
    let address = serve(shop().router()).await;
    for key in [&b"a\r\n\tset-cookie: x=y"[..], b"\"a\x01\"", b"\x00", b"a\x7fb", b"\"a\r\n\"", b"\xff\xff"] {
        let ask = [
            b"POST /orders HTTP/1.1\r\nhost: shop\r\nconnection: close\r\ncontent-length: 0\r\nidempotency-key: ",
            key,
            b"\r\n\r\n",
        ];
        let answer = raw(address, &ask.concat()).await;
        assert!(answer.starts_with("HTTP/1.1 400 ") && !answer.contains("set-cookie"), "{answer}");
    }
}
