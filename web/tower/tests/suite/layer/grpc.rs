//! Unary gRPC calls over HTTP/2, served by tonic: one message in, one out, and the status in the trailers.
use std::convert::Infallible;
use std::future::{Future, ready};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

use bytes::{Buf, BufMut, Bytes};
use futures_util::stream;
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::service::TowerToHyperService;
use idempotent_core::{Executor, MemoryStore};
use idempotent_tower::{IdempotencyLayer, Idempotent, Principal, RequestBody, ResponseRules, StorePolicy};
use tokio::net::{TcpListener, TcpStream};
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::server::{Grpc, UnaryService};
use tonic::{Code, Status};
use tower::{Layer, Service};

/// A codec for text messages.
#[derive(Clone, Copy, Default)]
struct Text;

impl Codec for Text {
    type Encode = String;
    type Decode = String;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for Text {
    type Item = String;
    type Error = Status;

    fn encode(&mut self, item: String, to: &mut EncodeBuf<'_>) -> Result<(), Status> {
        to.put_slice(item.as_bytes());
        Ok(())
    }
}

impl Decoder for Text {
    type Item = String;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<String>, Status> {
        let bytes = from.copy_to_bytes(from.remaining());
        String::from_utf8(bytes.into()).map(Some).map_err(|_| Status::invalid_argument("no text"))
    }
}

/// A service that counts its calls. The message `fail` fails.
#[derive(Clone, Default)]
struct Orders(Arc<AtomicU32>);

impl UnaryService<String> for Orders {
    type Response = String;
    type Future = Pin<Box<dyn Future<Output = Result<tonic::Response<String>, Status>> + Send>>;

    fn call(&mut self, request: tonic::Request<String>) -> Self::Future {
        let (run, said) = (self.0.fetch_add(1, SeqCst) + 1, request.into_inner());
        Box::pin(ready(match said.as_str() {
            "fail" => Err(Status::new(Code::ResourceExhausted, format!("run {run}"))),
            said => Ok(tonic::Response::new(format!("run {run}: {said}"))),
        }))
    }
}

/// The result of a call.
#[derive(Debug, PartialEq)]
struct Called {
    message: Vec<u8>,
    /// The status in the trailers, or otherwise in the headers.
    status: Option<String>,
    trailers: Option<HeaderMap>,
    replayed: bool,
}

impl Called {
    fn text(&self) -> &str {
        // The prefix is one byte of compression and four of length.
        self.message.get(5..).map_or("", |text| std::str::from_utf8(text).unwrap())
    }
}

/// Sends a gRPC message with this key to an HTTP/2 server.
async fn call(address: SocketAddr, key: &str, message: &str) -> Called {
    let stream = TcpStream::connect(address).await.unwrap();
    let (client, connection) = h2::client::handshake(stream).await.unwrap();
    tokio::spawn(connection);
    let request = Request::post("http://shop/shop.Orders/Order")
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .header("idempotency-key", key);
    let mut client = client.ready().await.unwrap();
    let (response, mut body) = client.send_request(request.body(()).unwrap(), false).unwrap();
    let mut framed = vec![0];
    framed.extend((message.len() as u32).to_be_bytes());
    framed.extend(message.as_bytes());
    body.send_data(framed.into(), true).unwrap();
    let (head, mut body) = response.await.unwrap().into_parts();
    assert_eq!(head.status, 200);
    let mut message = Vec::new();
    while let Some(data) = body.data().await {
        let data: Bytes = data.unwrap();
        body.flow_control().release_capacity(data.len()).unwrap();
        message.extend(data);
    }
    let trailers = body.trailers().await.unwrap();
    let status = trailers.as_ref().and_then(|these| these.get("grpc-status")).or(head.headers.get("grpc-status"));
    Called {
        status: status.map(|status| status.to_str().unwrap().to_owned()),
        message,
        trailers,
        replayed: head.headers.contains_key("idempotent-replayed"),
    }
}

/// Starts an HTTP/2 server with this service inside a layer with these rules. It stops with the runtime of the test.
async fn serve<S, R>(rules: ResponseRules, service: S) -> SocketAddr
where
    S: Service<Request<RequestBody<Incoming>>, Response = Response<R>, Error = Infallible, Future: Send>,
    S: Clone + Send + 'static,
    R: http_body::Body<Data = Bytes, Error: Into<Box<dyn std::error::Error + Send + Sync>> + Send> + Send + 'static,
{
    let layer = IdempotencyLayer::new(Executor::new(MemoryStore::new()), Principal::none()).response(rules);
    let service = layer.layer(service);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let stream = TokioIo::new(listener.accept().await.unwrap().0);
            let service = TowerToHyperService::new(service.clone());
            let server = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
            tokio::spawn(server.serve_connection(stream, service));
        }
    });
    address
}

async fn orders() -> SocketAddr {
    let orders = Orders::default();
    let service = move |request| {
        let orders = orders.clone();
        async move { Ok(Grpc::new(Text).unary(orders, request).await) }
    };
    serve(ResponseRules::default().store(StorePolicy::Grpc), tower::service_fn(service)).await
}

#[tokio::test]
async fn a_duplicate_call_receives_the_same_message_and_trailers() {
    let address = orders().await;
    let first = call(address, "a", "tea").await;
    assert_eq!((first.text(), first.status.as_deref(), first.replayed), ("run 1: tea", Some("0"), false));
    assert!(first.trailers.is_some());
    let second = call(address, "a", "tea").await;
    assert_eq!(second, Called { replayed: true, ..first });
}

#[tokio::test]
async fn a_failed_tonic_call_frees_its_key() {
    let address = orders().await;
    for _ in 0..2 {
        let failed = call(address, "a", "fail").await;
        assert_eq!((failed.status.as_deref(), failed.replayed), (Some("8"), false));
    }
    assert_eq!(call(address, "a", "tea").await.text(), "run 3: tea");
}

/// A server that has begun its response can send the status only after it. `decided` is the decision of the
/// handler.
async fn failing(store: StorePolicy, status: Option<&'static str>, decided: Option<Idempotent>) -> SocketAddr {
    let runs = Arc::new(AtomicU32::new(0));
    let service = move |_: Request<RequestBody<Incoming>>| {
        let run = runs.fetch_add(1, SeqCst) + 1;
        let trailers = status.map(|code| {
            let trailers = HeaderMap::from_iter([("grpc-status".parse().unwrap(), HeaderValue::from_static(code))]);
            Ok::<_, Infallible>(Frame::trailers(trailers))
        });
        let message = Ok(Frame::data(Bytes::from(format!("\0\0\0\0\x05run {run}"))));
        let body = StreamBody::new(stream::iter([message].into_iter().chain(trailers)));
        let mut response = Response::new(body.boxed_unsync());
        response.headers_mut().insert("content-type", HeaderValue::from_static("application/grpc+text"));
        decided.map(|decided| response.extensions_mut().insert(decided));
        ready(Ok::<_, Infallible>(response))
    };
    serve(ResponseRules::default().store(store).buffer_unknown(true), tower::service_fn(service)).await
}

/// Sends two equal calls.
async fn twice(address: SocketAddr) -> [(String, Option<String>, bool); 2] {
    let mut calls = Vec::new();
    for _ in 0..2 {
        let called = call(address, "a", "tea").await;
        calls.push((called.text().to_owned(), called.status, called.replayed));
    }
    calls.try_into().unwrap()
}

#[tokio::test]
async fn a_grpc_status_in_trailers_counts_with_the_grpc_policy() {
    let run =
        |number: u32, status: Option<&str>, replayed| (format!("run {number}"), status.map(str::to_owned), replayed);
    let failed = failing(StorePolicy::Grpc, Some("13"), None).await;
    assert_eq!(twice(failed).await, [run(1, Some("13"), false), run(2, Some("13"), false)]);
    let cut_short = failing(StorePolicy::Grpc, None, None).await;
    assert_eq!(twice(cut_short).await, [run(1, None, false), run(2, None, false)]);
    let fine = failing(StorePolicy::Grpc, Some("0"), None).await;
    assert_eq!(twice(fine).await, [run(1, Some("0"), false), run(1, Some("0"), true)]);
    // The handler overrides the policy.
    let done = failing(StorePolicy::Grpc, Some("13"), Some(Idempotent::store())).await;
    assert_eq!(twice(done).await, [run(1, Some("13"), false), run(1, Some("13"), true)]);
    // By the HTTP status alone the call is a success.
    let unknowing = failing(StorePolicy::Success, Some("13"), None).await;
    assert_eq!(twice(unknowing).await, [run(1, Some("13"), false), run(1, Some("13"), true)]);
}
