//! Servers of actix-web, the shop of the decision table, and a store with slow claims.
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use actix_web::dev::ServerHandle;
use actix_web::http::StatusCode;
use actix_web::http::header::{HeaderName, HeaderValue};
use actix_web::web::{self, ServiceConfig};
use actix_web::{App, HttpRequest, HttpResponse, HttpServer};
use async_trait::async_trait;
use bytes::Bytes;
use futures_util::stream;
use idempotent_actix_web::IdempotencyMiddleware;
use idempotent_core::{
    Claim, ClaimHandle, ClaimRequest, Completion, Executor, Key, MemoryStore, Record, Release, Settled, Store,
    StoreCapabilities, StoreError,
};
use idempotent_http_decisions::{Ask, Shop, by_user};
use idempotent_tower::{IdempotencyLayer, RequestAttempt};
use tokio::sync::Semaphore;

/// A server in this process. Stops when it is dropped.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    pub(crate) handle: ServerHandle,
}

impl Server {
    /// Starts a server of these services inside the middleware, with one worker.
    pub(crate) fn behind(
        once: IdempotencyMiddleware,
        services: impl Fn(&mut ServiceConfig) + Clone + Send + 'static,
    ) -> Self {
        Self::of(1, move |config| {
            config.service(web::scope("").wrap(once.clone()).configure(services.clone()));
        })
    }

    /// Starts a server of an application inside the middleware, which also accepts HTTP/2 without TLS.
    pub(crate) fn around(
        once: IdempotencyMiddleware,
        services: impl Fn(&mut ServiceConfig) + Clone + Send + 'static,
    ) -> Self {
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let server = HttpServer::new(move || App::new().wrap(once.clone()).configure(services.clone()));
        let server = server.workers(1).disable_signals().listen_auto_h2c(listener).unwrap().run();
        let handle = server.handle();
        tokio::spawn(server);
        Self { address, handle }
    }

    /// Starts a server of these services.
    pub(crate) fn of(workers: usize, services: impl Fn(&mut ServiceConfig) + Clone + Send + 'static) -> Self {
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let server = HttpServer::new(move || App::new().configure(services.clone()))
            .workers(workers)
            .disable_signals()
            // Otherwise, a client that closes its connection is not noticed before the response.
            .h1_allow_half_closed(false)
            .listen(listener)
            .unwrap()
            .run();
        let handle = server.handle();
        tokio::spawn(server);
        Self { address, handle }
    }

    /// Starts a server of the shop inside a middleware with this layer.
    pub(crate) fn of_shop(shop: &Shop, layer: IdempotencyLayer) -> Self {
        Self::behind(IdempotencyMiddleware::new(layer), routes(shop))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The command is sent at once.
        drop(self.handle.stop(false));
    }
}

/// Returns the routes of the shop.
pub(crate) fn routes(shop: &Shop) -> impl Fn(&mut ServiceConfig) + Clone + Send + 'static {
    let shop = shop.clone();
    move |config| {
        config
            .app_data(web::Data::new(shop.clone()))
            // The tests concern the limit of the layer.
            .app_data(web::PayloadConfig::new(8 << 20))
            .route("/orders", web::to(order))
            .route("/orders/{id}", web::to(order))
            .route("/baskets", web::post().to(order));
    }
}

/// Runs the handler of the shop.
pub(crate) async fn order(
    shop: web::Data<Shop>,
    attempt: Option<web::ReqData<RequestAttempt>>,
    request: HttpRequest,
    body: Bytes,
) -> HttpResponse {
    let told = |name: &str| Some(request.headers().get(name)?.to_str().ok()?.to_owned());
    let reply = shop.run(told, &body, attempt.map(|attempt| *attempt)).await;
    let mut response = HttpResponse::build(StatusCode::from_u16(reply.status).unwrap());
    for (name, value) in reply.headers {
        response.append_header((HeaderName::from_static(name), HeaderValue::from_bytes(&value).unwrap()));
    }
    let mut response = if reply.streamed {
        response.streaming(stream::iter([Ok::<_, std::convert::Infallible>(Bytes::from(reply.body))]))
    } else {
        response.body(reply.body)
    };
    if let Some(decision) = reply.decision {
        response.extensions_mut().insert(decision);
    }
    response
}

/// Returns a layer with defaults on a memory store.
pub(crate) fn layer() -> IdempotencyLayer {
    layer_on(Executor::new(MemoryStore::new()))
}

pub(crate) fn layer_on(executor: Executor) -> IdempotencyLayer {
    IdempotencyLayer::new(executor, by_user())
}

/// Returns an order with this key.
pub(crate) fn order_by(key: &str) -> Ask {
    Ask::post("/orders").header("idempotency-key", key)
}

/// A store that replies to claims only when the test permits it.
#[derive(Clone, Debug)]
pub(crate) struct SlowClaims {
    inner: MemoryStore,
    /// Claims without a reply.
    pub(crate) made: Arc<Semaphore>,
    pub(crate) may: Arc<Semaphore>,
}

impl SlowClaims {
    pub(crate) fn new(inner: MemoryStore) -> Self {
        Self { inner, made: Arc::new(Semaphore::new(0)), may: Arc::new(Semaphore::new(0)) }
    }
}

#[async_trait]
impl Store for SlowClaims {
    async fn claim(&self, request: &ClaimRequest) -> Result<Claim, StoreError> {
        let claim = self.inner.claim(request).await;
        self.made.add_permits(1);
        self.may.acquire().await.unwrap().forget();
        claim
    }
    async fn renew(&self, held: &ClaimHandle, lease: Duration) -> Result<Settled, StoreError> {
        self.inner.renew(held, lease).await
    }
    async fn complete(&self, held: &ClaimHandle, completion: &Completion) -> Result<Settled, StoreError> {
        self.inner.complete(held, completion).await
    }
    async fn release(&self, held: &ClaimHandle, release: &Release) -> Result<Settled, StoreError> {
        self.inner.release(held, release).await
    }
    async fn peek(&self, key: &Key) -> Result<Option<Record>, StoreError> {
        self.inner.peek(key).await
    }
    fn capabilities(&self) -> StoreCapabilities<'_> {
        StoreCapabilities::none()
    }
}
