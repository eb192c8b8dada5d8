//! A hyper service without axum inside the layer.
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use idempotent_core::{Executor, MemoryStore};
use idempotent_tower::{IdempotencyLayer, RequestBody};
use tokio::net::TcpListener;
use tower::Layer;

use crate::layer::support::by_user;
use crate::layer::wire::raw;

/// Returns the number of runs, the size hint, the body, and its trailers.
async fn told(
    runs: Arc<AtomicU32>,
    request: Request<RequestBody<Incoming>>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let (run, hint) = (runs.fetch_add(1, SeqCst) + 1, request.body().size_hint());
    let (exact, ended) = (hint.exact(), request.body().is_end_stream());
    let body = request.into_body().collect().await.unwrap();
    let trailers = body.trailers().cloned().unwrap_or_default();
    let text = String::from_utf8(body.to_bytes().into()).unwrap();
    let told = format!("{run}: {text} {exact:?} {ended} {trailers:?}");
    Ok(Response::new(Full::from(told)))
}

/// Starts a server that stops with the runtime of the test.
async fn serve() -> SocketAddr {
    let runs = Arc::new(AtomicU32::new(0));
    let layer = IdempotencyLayer::new(Executor::new(MemoryStore::new()), by_user());
    let service = layer.layer(tower::service_fn(move |request| told(runs.clone(), request)));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let stream = TokioIo::new(listener.accept().await.unwrap().0);
            let service = TowerToHyperService::new(service.clone());
            tokio::spawn(hyper::server::conn::http1::Builder::new().serve_connection(stream, service));
        }
    });
    address
}

async fn ask(address: SocketAddr, line: &str, rest: &str) -> String {
    raw(address, format!("{line} / HTTP/1.1\r\nhost: shop\r\nconnection: close\r\n{rest}").as_bytes()).await
}

fn body(answer: &str) -> &str {
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    answer.split_once("\r\n\r\n").unwrap().1
}

const TEA: &str = "idempotency-key: a\r\ncontent-length: 3\r\n\r\ntea";

#[tokio::test]
async fn a_hyper_service_runs_once_and_its_response_is_replayed() {
    let address = serve().await;
    let first = ask(address, "POST", TEA).await;
    assert_eq!(body(&first), "1: tea Some(3) false {}");
    assert!(!first.contains("idempotent-replayed"), "{first}");
    let second = ask(address, "POST", TEA).await;
    assert_eq!(body(&second), body(&first));
    assert!(second.contains("idempotent-replayed: true"), "{second}");
    let other = ask(address, "POST", &TEA.replace("tea", "gin")).await;
    assert!(other.starts_with("HTTP/1.1 422 ") && other.contains("key-reused"), "{other}");
}

#[tokio::test]
async fn a_request_that_passes_through_is_unchanged() {
    let address = serve().await;
    assert_eq!(body(&ask(address, "GET", "\r\n").await), "1:  Some(0) true {}");
    assert_eq!(body(&ask(address, "PUT", TEA).await), "2: tea Some(3) false {}");
    let chunked = "trailer: x-sum\r\ntransfer-encoding: chunked\r\n\r\n3\r\ntea\r\n0\r\nx-sum: 7\r\n\r\n";
    assert_eq!(body(&ask(address, "PUT", chunked).await), "3: tea None false {\"x-sum\": \"7\"}");
}

/// Trailers are not part of the payload, nor are headers.
#[tokio::test]
async fn request_trailers_reach_the_handler() {
    let address = serve().await;
    let chunked = |sum: u32| {
        format!(
            "idempotency-key: a\r\ntrailer: x-sum\r\ntransfer-encoding: chunked\r\n\r\n1\r\nt\r\n2\r\nea\r\n0\r\nx-sum: {sum}\r\n\r\n"
        )
    };
    let first = ask(address, "POST", &chunked(7)).await;
    assert_eq!(body(&first), "1: tea None false {\"x-sum\": \"7\"}");
    assert_eq!(body(&ask(address, "POST", &chunked(8)).await), body(&first));
}
