//! Requests that are rejected before their bodies have arrived: the response reaches the client.
use axum::http::StatusCode;
use idempotent_tower::{Caller, Denied, IdempotencyLayer, Principal};

use crate::sockets::support::{Ask, Backing, Client, Kind, Server};

/// Much larger than the socket buffers between client and server.
const LARGE: usize = 200 << 10;

/// A shop that denies the caller `nobody`.
async fn server() -> Server {
    let executor = Backing::new(Kind::Memory).executor().await;
    let nobody = |parts: &axum::http::request::Parts| parts.headers.get("x-user").is_some_and(|user| user == "nobody");
    let principal = Principal::from_fn(move |parts| {
        if nobody(parts) { Err(Denied::status(StatusCode::FORBIDDEN)) } else { Ok(Caller::anonymous()) }
    });
    Server::of(executor.clone(), IdempotencyLayer::new(executor, principal)).await
}

/// Without a key, with an invalid key, and from a denied caller.
fn refused() -> [(Ask, u16, &'static str); 3] {
    let body = |ask: Ask| ask.body(vec![7; LARGE]);
    [
        (body(Ask::post("/orders")), 400, "missing-key"),
        (body(Ask::order("a,b", "lamp")), 400, "invalid-key"),
        (body(Ask::order("k", "lamp").user("nobody")), 403, ""),
    ]
}

/// A client that reads only after it has sent everything.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rejection_reaches_a_client_that_sends_its_whole_body_first() {
    let server = server().await;
    for (ask, status, code) in refused() {
        for ask in [ask.clone(), ask.chunked(10_000)] {
            let mut client = Client::connect(server.address).await;
            for round in 0..100 {
                assert!(client.try_send(&ask.bytes()).await, "hung up on in round {round}");
                let answer = client.answer_or_end().await;
                answer.unwrap_or_else(|| panic!("no answer in round {round}")).is(status, code);
            }
        }
    }
    assert_eq!((server.shop.total(), server.executor.counts().deliveries()), (0, 0));
}

/// Bodies of known and unknown length. The unread rest is as large as an accepted body.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_413_reaches_a_client_that_sends_its_whole_body_first() {
    let server = Server::with(|layer| layer.max_body(LARGE as u64)).await;
    let ask = Ask::order("k", "lamp").body(vec![7; 2 * LARGE]);
    for ask in [ask.clone().chunked(10_000), ask] {
        for round in 0..50 {
            let mut client = Client::connect(server.address).await;
            assert!(client.try_send(&ask.bytes()).await, "hung up on in round {round}");
            let answer = client.answer_or_end().await;
            answer.unwrap_or_else(|| panic!("no answer in round {round}")).is(413, "body-too-large");
        }
    }
    assert_eq!((server.shop.total(), server.executor.counts().deliveries()), (0, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_expects_100_continue_is_rejected_without_it() {
    let server = server().await;
    for (ask, status, code) in refused() {
        let mut client = Client::connect(server.address).await;
        client.send(&ask.header("expect", "100-continue").head()).await;
        let answer = client.answer().await;
        answer.is(status, code);
        assert_eq!(answer.header("connection"), Some("close"), "{answer}");
        assert!(client.answer_or_end().await.is_none());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rejection_does_not_wait_for_a_body_that_never_arrives() {
    let server = server().await;
    for (ask, status, code) in refused() {
        let mut client = Client::connect(server.address).await;
        client.send(&ask.head()).await;
        client.send(b"a little").await;
        client.answer().await.is(status, code);
        // The connection does not stay open for the body.
        assert!(client.answer_or_end().await.is_none());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_closes_with_a_header_if_its_body_is_not_read_to_the_end() {
    let server = Server::with(|layer| layer.max_body(LARGE as u64)).await;
    let ask = Ask::order("k", "lamp").body(vec![7; 4 * LARGE]);
    let mut client = Client::connect(server.address).await;
    client.send(&ask.head()).await;
    let answer = client.answer().await;
    answer.is(413, "body-too-large");
    assert_eq!(answer.header("connection"), Some("close"), "{answer}");
    assert!(client.answer_or_end().await.is_none());
}

/// The request that follows a rejected one is neither part of its body nor lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_after_a_rejected_one_is_handled_but_not_one_inside_its_body() {
    let server = server().await;
    let mut runs = 0;
    for (ask, status, code) in refused() {
        for ask in [ask.clone(), ask.chunked(10_000)] {
            let mut client = Client::connect(server.address).await;
            let next = Ask::order(&format!("next-{runs}"), "lamp");
            client.send(&[ask.bytes(), next.bytes()].concat()).await;
            client.answer().await.is(status, code);
            client.answer().await.is(201, "");
            runs += 1;
            assert_eq!(server.shop.total(), runs);
        }
    }
    // The body is longer than the discarded part. A server that lost track would read the rest as requests.
    let server = Server::with(|layer| layer.max_body(10)).await;
    let hidden = Ask::order("hidden", "lamp").bytes();
    let body: Vec<u8> = hidden.iter().copied().cycle().take(hidden.len() * (LARGE / hidden.len())).collect();
    for ask in [Ask::post("/orders").body(body.clone()), Ask::order("k", "lamp").body(body).chunked(hidden.len())] {
        let mut client = Client::connect(server.address).await;
        let _ = client.try_send(&ask.bytes()).await;
        while client.answer_or_end().await.is_some() {}
        assert_eq!(server.shop.total(), 0);
    }
}
