//! A server of actix-web inside the middleware: a duplicate, another body, a request in flight, a failure, a request without a
//! key, and a drain.
//!
//! Run: `cargo run -p idempotent-examples --features actix-web --example rest_actix`
#![allow(clippy::print_stdout, reason = "an example prints its progress")]
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::Duration;

use actix_web::error::ErrorInternalServerError;
use actix_web::{App, HttpResponse, HttpServer, web};
use idempotent::http::{Caller, IdempotencyMiddleware, Principal, RequestAttempt};
use idempotent::{Executor, IdempotencyLayer, MemoryStore};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Notify;

#[derive(Default)]
struct Orders {
    numbers: AtomicU32,
    started: Notify,
    approved: Notify,
}

/// Creates an order. Its run is an extension of the request.
async fn create(
    orders: web::Data<Orders>,
    attempt: web::ReqData<RequestAttempt>,
    article: String,
) -> actix_web::Result<HttpResponse> {
    match article.as_str() {
        "nothing" => return Err(ErrorInternalServerError("an order of nothing")), // frees the key
        "slow" => {
            orders.started.notify_one();
            orders.approved.notified().await;
        }
        _ => {}
    }
    let number = orders.numbers.fetch_add(1, SeqCst) + 1;
    println!("order {number}: {article}, by run {:?}", attempt.fencing());
    Ok(HttpResponse::Created().body(format!("order {number}")))
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let executor = Executor::new(MemoryStore::new());
    let principal = Principal::from_fn(|head| {
        let user = head.headers.get("x-user").and_then(|user| user.to_str().ok());
        Ok(user.map_or_else(Caller::anonymous, Caller::named))
    });
    let layer = IdempotencyLayer::new(executor.clone(), principal);
    layer.check()?;

    // Outside of the closure, which runs once for each worker: the workers share the executor.
    let once = IdempotencyMiddleware::new(layer);
    let orders = web::Data::from(Arc::new(Orders::default()));
    let (listener, shared) = (TcpListener::bind("127.0.0.1:0")?, orders.clone());
    let address = listener.local_addr()?;
    let server = HttpServer::new(move || {
        let orders = web::resource("/orders").wrap(once.clone()).route(web::post().to(create));
        App::new().app_data(shared.clone()).service(orders)
    })
    .workers(2)
    .disable_signals()
    .listen(listener)?
    .run();
    let handle = server.handle();
    let serving = tokio::spawn(server);

    let first = post(address, Some("8e03978e"), "teapot").await?;
    let second = post(address, Some("8e03978e"), "teapot").await?;
    assert!(first.starts_with("HTTP/1.1 201 ") && first.ends_with("order 1") && second.ends_with("order 1"));
    assert!(!first.contains("idempotent-replayed: true") && second.contains("idempotent-replayed: true"));
    println!("the duplicate received the recorded response");

    let reused = post(address, Some("8e03978e"), "kettle").await?;
    assert!(reused.starts_with("HTTP/1.1 422 ") && reused.contains("key-reused"));
    println!("the same key for a kettle: 422");

    let slow = tokio::spawn(post(address, Some("b01ab2f4"), "slow"));
    orders.started.notified().await;
    let duplicate = post(address, Some("b01ab2f4"), "slow").await?;
    assert!(duplicate.starts_with("HTTP/1.1 409 ") && duplicate.contains("retry-after: "));
    println!("a duplicate of a running request: 409");
    orders.approved.notify_one();
    assert!(slow.await??.ends_with("order 2"));

    for _ in 0..2 {
        // The handler runs each time.
        assert!(post(address, Some("c5d1e3aa"), "nothing").await?.ends_with("an order of nothing"));
    }
    println!("an order of nothing: failed, and its key is free");

    let missing = post(address, None, "teapot").await?;
    assert!(missing.starts_with("HTTP/1.1 400 ") && missing.contains("missing-key"));
    println!("a request without a key: 400");

    // First the drain: a worker that stops drops the handlers of clients that have disconnected.
    let drained = executor.drain(Duration::from_secs(30)).await;
    handle.stop(true).await;
    serving.await??;
    println!("stopped, {} runs were cut off", drained.abandoned);
    Ok(())
}

/// Sends an order, and returns the response as it was received.
async fn post(address: SocketAddr, key: Option<&'static str>, article: &'static str) -> anyhow::Result<String> {
    let key = key.map(|key| format!("idempotency-key: {key}\r\n")).unwrap_or_default();
    let length = article.len();
    let head =
        format!("POST /orders HTTP/1.1\r\nhost: shop\r\nconnection: close\r\n{key}content-length: {length}\r\n\r\n");
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(&[head.as_bytes(), article.as_bytes()].concat()).await?;
    let mut response = String::new();
    stream.read_to_string(&mut response).await?;
    Ok(response)
}

#[test]
fn an_order_is_created_once() -> anyhow::Result<()> {
    main()
}
