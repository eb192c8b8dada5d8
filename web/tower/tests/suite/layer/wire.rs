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
