//! Connections: keep-alive, unread bodies, pipelining, and other protocols.
use actix_web::http::StatusCode;
use actix_web::{HttpResponse, web};
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use idempotent_actix_web::IdempotencyMiddleware;
use idempotent_http_decisions::{Ask, Client, Shop};

use crate::support::{Server, layer, order_by, routes};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rejected_request_whose_body_has_arrived_keeps_its_connection() {
    let shop = Shop::default();
    let server = Server::of_shop(&shop, layer());
    let mut client = Client::connect(server.address).await;
    for _ in 0..3 {
        let refused = client.ask(&Ask::post("/orders")).await;
        refused.is(400, "missing-key");
        assert_eq!(refused.header("connection"), None);
    }
    assert_eq!(client.ask(&order_by("a")).await.status, 201);
}

/// The client reads the response although it is still sending.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_upload_is_rejected_and_its_client_reads_the_response() {
    let shop = Shop::default();
    let server = Server::of_shop(&shop, layer());
    for ask in [order_by("a"), Ask::post("/orders")] {
        for ask in [ask.clone().body(vec![b'x'; 3 << 20]), ask.body(vec![b'x'; 3 << 20]).chunked(1 << 16)] {
            let mut client = Client::connect(server.address).await;
            client.try_send(&ask.bytes()).await;
            let refused = client.answer().await;
            assert!(matches!(refused.status, 400 | 413), "{refused}");
        }
    }
    assert_eq!(shop.runs(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_of_a_declared_length_over_the_limit_is_rejected_before_it_arrives() {
    let server = Server::of_shop(&Shop::default(), layer());
    let ask = order_by("a").body(vec![b'x'; 3 << 20]);
    let mut client = Client::connect(server.address).await;
    client.send(&ask.head()).await;
    let refused = client.answer().await;
    assert_eq!((refused.status, refused.header("connection")), (413, Some("close")), "{refused}");
    assert!(client.answer_or_end().await.is_none(), "the server has closed the connection");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_waits_for_100_continue_is_served() {
    let shop = Shop::default();
    let server = Server::of_shop(&shop, layer());
    let ask = order_by("a").header("expect", "100-continue");
    let (head, bytes) = (ask.head().len(), ask.bytes());
    let mut client = Client::connect(server.address).await;
    client.send(&bytes[..head]).await;
    assert_eq!(client.answer().await.status, 100);
    client.send(&bytes[head..]).await;
    assert_eq!(client.answer().await.status, 201);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_aborted_upload_claims_nothing() {
    let shop = Shop::default();
    let layer = layer();
    let server = Server::of_shop(&shop, layer);
    let ask = order_by("a").header("expect", "100-continue");
    let (head, bytes) = (ask.head().len(), ask.bytes());
    let mut client = Client::connect(server.address).await;
    client.send(&bytes[..head]).await;
    assert_eq!(client.answer().await.status, 100);
    client.send(&bytes[head..head + 3]).await;
    drop(client);
    // Another body of the same key would be rejected with 422 or 409 after a claim.
    let other = order_by("a").body("another body");
    assert_eq!(Client::connect(server.address).await.ask(&other).await.status, 201);
    assert_eq!(shop.runs(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn equal_requests_in_one_write_run_once() {
    let shop = Shop::default();
    let server = Server::of_shop(&shop, layer());
    let mut client = Client::connect(server.address).await;
    client.send(&order_by("a").bytes().repeat(10)).await;
    assert!(!client.answer().await.is_replay());
    for _ in 1..10 {
        assert!(client.answer().await.is_replay());
    }
    assert_eq!(shop.runs(), 1);
}

/// The handshake of a websocket is a GET, so it passes through. What follows is not HTTP.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_websocket_passes_through() {
    let socket = async |mut body: web::Payload| {
        let told = stream::once(async move { body.next().await.unwrap() });
        HttpResponse::build(StatusCode::SWITCHING_PROTOCOLS).upgrade("websocket").streaming(told)
    };
    let server = Server::behind(IdempotencyMiddleware::new(layer()), move |config| {
        config.route("/socket", web::get().to(socket));
    });
    let mut client = Client::connect(server.address).await;
    client.send(b"GET /socket HTTP/1.1\r\nhost: shop\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n").await;
    let head = client.until(b"\r\n\r\n").await;
    assert!(head.starts_with(b"HTTP/1.1 101 "), "{}", head.escape_ascii());
    client.send(b"ping.").await;
    assert_eq!(client.until(b".").await, b"ping.");
}

/// The second chunk exists only after the client has read the first.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_reaches_its_client_as_it_arrives() {
    let (sender, receiver) = tokio::sync::watch::channel(false);
    let streaming = move || {
        let mut receiver = receiver.clone();
        async move {
            let second = async move {
                receiver.wait_for(|sent| *sent).await.unwrap();
                Ok(Bytes::from_static(b"second."))
            };
            // An empty chunk is not the end.
            let first = stream::iter([Ok::<_, std::io::Error>(Bytes::from_static(b"first.")), Ok(Bytes::new())]);
            HttpResponse::Ok().streaming(first.chain(stream::once(second)))
        }
    };
    let once = IdempotencyMiddleware::new(layer());
    let server = Server::behind(once, move |config| {
        config.route("/orders", web::post().to(streaming.clone()));
    });
    let mut client = Client::connect(server.address).await;
    client.send(&order_by("a").bytes()).await;
    assert!(client.until(b"first.").await.starts_with(b"HTTP/1.1 200 "));
    sender.send_replace(true);
    client.until(b"second.").await;
    Client::connect(server.address).await.ask(&order_by("a")).await.is(409, "response-not-retained");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_over_http2_run_once() {
    let shop = Shop::default();
    let server = Server::around(IdempotencyMiddleware::new(layer()), routes(&shop));
    let stream = tokio::net::TcpStream::connect(server.address).await.unwrap();
    let (mut client, connection) = h2::client::handshake(stream).await.unwrap();
    tokio::spawn(connection);
    let mut ask = async |key: Option<&str>, body: &'static str| {
        let mut request = http::Request::post("http://shop/orders");
        if let Some(key) = key {
            request = request.header("idempotency-key", key);
        }
        let (response, mut upload) = client.send_request(request.body(()).unwrap(), false).unwrap();
        upload.send_data(Bytes::from_static(body.as_bytes()), true).unwrap();
        let (head, mut body) = response.await.unwrap().into_parts();
        let mut read = Vec::new();
        while let Some(data) = body.data().await {
            read.extend(data.unwrap());
        }
        (head.status.as_u16(), head.headers.contains_key("idempotent-replayed"), String::from_utf8(read).unwrap())
    };
    assert_eq!(ask(Some("a"), "tea").await, (201, false, "1:".to_owned()));
    assert_eq!(ask(Some("a"), "tea").await, (201, true, "1:".to_owned()));
    assert_eq!(ask(Some("a"), "gin").await.0, 422);
    assert_eq!(ask(None, "tea").await.0, 400);
    assert_eq!(shop.runs(), 1);
}
