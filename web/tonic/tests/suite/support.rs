//! A shop with methods of each kind, its server, and its client.
use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::{Stream, StreamExt, stream};
use http::HeaderMap;
use http::uri::PathAndQuery;
use http_body_util::BodyExt;
use idempotent_core::{Executor, MemoryStore};
use idempotent_testkit::VirtualClock;
use idempotent_tonic::GrpcLayer;
use idempotent_tower::{Idempotent, Principal, RequestAttempt};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::body::Body;
use tonic::client::Grpc;
use tonic::codec::CompressionEncoding;
use tonic::server::NamedService;
use tonic::transport::{Channel, Endpoint, Server};
use tonic::{Request, Response, Status, Streaming};
use tonic_prost::ProstCodec;
use tower::{Service, ServiceExt, service_fn};

type BoxError = Box<dyn std::error::Error + Send + Sync>;

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Payment {
    #[prost(string, tag = "1")]
    pub(crate) order: String,
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) filler: Vec<u8>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Receipt {
    #[prost(uint32, tag = "1")]
    pub(crate) run: u32,
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) filler: Vec<u8>,
}

pub(crate) fn payment(order: &str) -> Payment {
    Payment { order: order.to_owned(), filler: Vec::new() }
}

/// The service `shop.Orders`. The text of an order selects the behaviour of a method.
#[derive(Clone)]
pub(crate) struct Shop {
    runs: Arc<AtomicU32>,
    pub(crate) gate: Arc<Semaphore>,
    pub(crate) attempts: Arc<Mutex<Vec<RequestAttempt>>>,
}

impl Shop {
    pub(crate) fn new() -> Self {
        Self { runs: Arc::default(), gate: Arc::new(Semaphore::new(0)), attempts: Arc::default() }
    }

    pub(crate) fn runs(&self) -> u32 {
        self.runs.load(SeqCst)
    }

    async fn pay(self, request: Request<Payment>) -> Result<Response<Receipt>, Status> {
        self.attempts.lock().unwrap().extend(request.extensions().get::<RequestAttempt>());
        let run = self.runs.fetch_add(1, SeqCst) + 1;
        let payment = request.into_inner();
        match payment.order.as_str() {
            "declined" => return Err(Status::failed_precondition(format!("run {run}: declined"))),
            "busy" => return Err(Status::unavailable("busy")),
            "panic" => panic!("as told"),
            "hold" => self.gate.acquire().await.unwrap().forget(),
            _ => {}
        }
        let mut response = Response::new(Receipt { run, filler: payment.filler });
        if payment.order == "tentative" {
            response.extensions_mut().insert(Idempotent::release());
        }
        if payment.order == "traced" {
            for name in ["x-ratelimit-remaining", "x-request-id", "grpc-trace-bin", "endpoint-load-metrics"] {
                response.metadata_mut().as_mut().insert(name, http::HeaderValue::from(run));
            }
        }
        response.metadata_mut().insert("x-run", run.into());
        response.metadata_mut().append("x-part", "one".parse().unwrap());
        response.metadata_mut().append("x-part", "two".parse().unwrap());
        Ok(response)
    }

    /// Sends two receipts, or one without an end for the order `open`, or one and a failure for the order `fails`.
    async fn watch(self, request: Request<Payment>) -> Result<Response<Receipts>, Status> {
        let run = self.runs.fetch_add(1, SeqCst) + 1;
        let receipt = Ok(Receipt { run, filler: Vec::new() });
        let rest = match request.into_inner().order.as_str() {
            "open" => stream::pending().boxed(),
            "fails" => stream::iter([Err(Status::failed_precondition("sold out"))]).boxed(),
            _ => stream::iter([receipt.clone()]).boxed(),
        };
        Ok(Response::new(stream::iter([receipt]).chain(rest).boxed()))
    }

    /// Counts the messages of the request.
    async fn upload(self, request: Request<Streaming<Payment>>) -> Result<Response<Receipt>, Status> {
        self.runs.fetch_add(1, SeqCst);
        let all = request.into_inner().collect::<Vec<_>>().await;
        Ok(Response::new(Receipt { run: u32::try_from(all.len()).unwrap(), filler: Vec::new() }))
    }

    /// Answers each message with its number.
    async fn chat(self, request: Request<Streaming<Payment>>) -> Result<Response<Receipts>, Status> {
        self.runs.fetch_add(1, SeqCst);
        let numbered = request.into_inner().zip(stream::iter(1..));
        let receipts = numbered.map(|(message, run)| message.map(|_| Receipt { run, filler: Vec::new() }));
        Ok(Response::new(receipts.boxed()))
    }
}

type Receipts = Pin<Box<dyn Stream<Item = Result<Receipt, Status>> + Send>>;

impl NamedService for Shop {
    const NAME: &'static str = "shop.Orders";
}

impl<B> Service<http::Request<B>> for Shop
where
    B: http_body::Body<Data = Bytes, Error: Into<BoxError> + Send> + Send + 'static,
{
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<B>) -> Self::Future {
        let (shop, gzip) = (self.clone(), CompressionEncoding::Gzip);
        let mut grpc = tonic::server::Grpc::new(ProstCodec::default()).accept_compressed(gzip).send_compressed(gzip);
        Box::pin(async move {
            Ok(match request.uri().path() {
                "/shop.Orders/Pay" => grpc.unary(service_fn(move |asked| shop.clone().pay(asked)), request).await,
                "/shop.Orders/Watch" => {
                    grpc.server_streaming(service_fn(move |asked| shop.clone().watch(asked)), request).await
                }
                "/shop.Orders/Upload" => {
                    grpc.client_streaming(service_fn(move |asked| shop.clone().upload(asked)), request).await
                }
                "/shop.Orders/Chat" => grpc.streaming(service_fn(move |asked| shop.clone().chat(asked)), request).await,
                _ => Status::unimplemented("no such method").into_http(),
            })
        })
    }
}

/// A server and its client.
pub(crate) struct World {
    pub(crate) shop: Shop,
    pub(crate) executor: Executor,
    pub(crate) channel: Channel,
}

impl World {
    pub(crate) async fn new() -> Self {
        Self::with(|layer| layer).await
    }

    /// Starts a server with these settings of the layer.
    pub(crate) async fn with(set: impl FnOnce(GrpcLayer) -> GrpcLayer) -> Self {
        Self::of(Executor::new(MemoryStore::new()), Principal::none(), set).await
    }

    /// Starts a server whose layer has a virtual clock, so that a call counts as a stream only by an advance.
    pub(crate) async fn timed(set: impl FnOnce(GrpcLayer) -> GrpcLayer) -> (Self, VirtualClock) {
        let clock = VirtualClock::new();
        let store = MemoryStore::builder().clock(Arc::new(clock.clone())).build();
        let executor = Executor::builder(store).clock(Arc::new(clock.clone())).build().unwrap();
        (Self::of(executor, Principal::none(), set).await, clock)
    }

    pub(crate) async fn of(executor: Executor, principal: Principal, set: impl FnOnce(GrpcLayer) -> GrpcLayer) -> Self {
        let shop = Shop::new();
        let layer = set(GrpcLayer::new(executor.clone(), principal));
        let (health, health_service) = tonic_health::server::health_reporter();
        health.set_serving::<Shop>().await;
        let reflection = tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
            .build_v1()
            .unwrap();
        let server = Server::builder()
            .layer(layer)
            .add_service(shop.clone())
            .add_service(health_service)
            .add_service(reflection);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));
        let channel = Endpoint::from_shared(format!("http://{address}")).unwrap().connect_lazy();
        Self { shop, executor, channel }
    }

    /// Returns a client for one call.
    pub(crate) async fn client(&self) -> Grpc<Channel> {
        let mut client = Grpc::new(self.channel.clone());
        client.ready().await.unwrap();
        client
    }

    /// Pays an order with this key.
    pub(crate) async fn pay(&self, key: &str, order: &str) -> Result<Response<Receipt>, Status> {
        self.send(with_key(key, payment(order))).await
    }

    pub(crate) async fn send(&self, request: Request<Payment>) -> Result<Response<Receipt>, Status> {
        paid(self.client().await, request).await
    }

    /// Starts a payment in a task, which pays after the gate is open.
    pub(crate) async fn hold(&self, key: &str) -> tokio::task::JoinHandle<Result<Response<Receipt>, Status>> {
        let before = self.shop.runs();
        let call = tokio::spawn(paid(self.client().await, with_key(key, payment("hold"))));
        until(|| self.shop.runs() > before).await;
        call
    }

    /// Sends bytes as the body of a POST, and returns the response in its parts.
    pub(crate) async fn raw(&self, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Raw {
        self.raw_by("POST", path, headers, body).await
    }

    /// Sends bytes as the body of a request with this HTTP method.
    pub(crate) async fn raw_by(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Raw {
        let mut request = http::Request::builder().method(method).uri(path).header("te", "trailers");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let body = Body::new(http_body_util::Full::new(Bytes::copy_from_slice(body)));
        let response = self.channel.clone().oneshot(request.body(body).unwrap()).await.unwrap();
        let (mut parts, body) = response.into_parts();
        parts.headers.remove("date");
        let body = body.collect().await.unwrap();
        let trailers = body.trailers().cloned();
        Raw { http_status: parts.status.as_u16(), headers: parts.headers, body: body.to_bytes(), trailers }
    }

    /// Sends a call with the protobuf encoding of a payment of `tea`.
    pub(crate) async fn raw_pay(&self, headers: &[(&str, &str)]) -> Raw {
        let headers = [&[("content-type", "application/grpc")], headers].concat();
        self.raw("/shop.Orders/Pay", &headers, TEA).await
    }
}

/// Calls the unary method.
pub(crate) async fn paid(mut client: Grpc<Channel>, request: Request<Payment>) -> Result<Response<Receipt>, Status> {
    client.unary(request, PathAndQuery::from_static("/shop.Orders/Pay"), ProstCodec::default()).await
}

/// A gRPC body of the message `Payment { order: "tea" }`.
pub(crate) const TEA: &[u8] = b"\0\0\0\0\x05\x0a\x03tea";

/// A response in its parts, without the time of the server.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Raw {
    pub(crate) http_status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    pub(crate) trailers: Option<HeaderMap>,
}

impl Raw {
    /// Returns the status in the trailers, or otherwise in the headers.
    pub(crate) fn status(&self) -> Option<&str> {
        let trailers = self.trailers.as_ref().and_then(|trailers| trailers.get("grpc-status"));
        trailers.or_else(|| self.headers.get("grpc-status")).map(|status| status.to_str().unwrap())
    }
}

pub(crate) fn with_key<M>(key: &str, message: M) -> Request<M> {
    let mut request = Request::new(message);
    request.metadata_mut().insert("idempotency-key", key.parse().unwrap());
    request
}

/// Returns whether a response is marked as a replay.
pub(crate) fn is_replay<T>(response: &Response<T>) -> bool {
    response.metadata().get("idempotent-replayed").is_some_and(|marker| marker == "true")
}

/// Advances the clock until a call has its response, which is an answer to a pause.
pub(crate) async fn after_pause<T>(clock: &VirtualClock, call: impl Future<Output = T>) -> T {
    let advance = async {
        loop {
            clock.advance(std::time::Duration::from_secs(1)).await;
            tokio::time::sleep(std::time::Duration::from_millis(2)).await;
        }
    };
    tokio::select! {
        response = call => response,
        () = advance => unreachable!("the loop has no end"),
    }
}

/// Waits for an event of another task.
pub(crate) async fn until(mut happened: impl FnMut() -> bool) {
    while !happened() {
        tokio::time::sleep(std::time::Duration::from_millis(2)).await;
    }
}
