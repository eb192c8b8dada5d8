//! A shop inside a layer, in a world with a virtual clock.
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Path, Request};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, post};
use bytes::Bytes;
use http::header::{HeaderMap, HeaderName, HeaderValue, LOCATION};
use http::{Method, StatusCode};
use http_body_util::BodyExt;
use idempotent_core::{Clock, Event, Executor, Key, MemoryStore, Observer, Policy, RunInfo, Scene, Tracing};
use idempotent_testkit::{FaultStore, VirtualClock};
use idempotent_tower::{Caller, IdempotencyLayer, Idempotent, Principal, RequestAttempt};
use tokio::task::JoinHandle;
use tower::ServiceExt;

pub(crate) const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

pub(crate) const fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

/// A store, its clock, and an executor without jitter.
pub(crate) struct World {
    pub(crate) clock: VirtualClock,
    pub(crate) store: FaultStore,
    pub(crate) executor: Executor,
    claimed: Claimed,
}

/// An observer that records claimed keys.
#[derive(Clone, Debug, Default)]
struct Claimed(Arc<Mutex<Vec<Key>>>);

impl Observer for Claimed {
    fn on(&self, run: &RunInfo<'_>, event: &Event<'_>) {
        if let (Event::Claimed { .. }, Some(key)) = (event, run.key) {
            self.0.lock().unwrap().push(key.clone());
        }
        Tracing.on(run, event);
    }
}

impl World {
    pub(crate) fn new() -> Self {
        Self::by(Policy::new())
    }

    pub(crate) fn by(policy: Policy) -> Self {
        crate::layer::logs::listen();
        let (clock, claimed) = (VirtualClock::new(), Claimed::default());
        let store = FaultStore::new(MemoryStore::builder().clock(Arc::new(clock.clone())).build(), &clock);
        let executor = Executor::builder(store.clone())
            .clock(Arc::new(clock.clone()))
            .policy(Scene::Rest, policy.or(Policy::new().jitter(0)))
            .observer(claimed.clone())
            .build()
            .unwrap();
        Self { clock, store, executor, claimed }
    }

    pub(crate) fn layer(&self) -> IdempotencyLayer {
        IdempotencyLayer::new(self.executor.clone(), by_user())
    }

    /// Creates a shop inside a layer with defaults.
    pub(crate) fn shop(&self) -> Shop {
        self.shop_behind(self.layer())
    }

    pub(crate) fn shop_behind(&self, layer: IdempotencyLayer) -> Shop {
        Shop::behind(layer, self.clock.clone())
    }

    /// Returns the claimed keys in order.
    pub(crate) fn keys(&self) -> Vec<Key> {
        self.claimed.0.lock().unwrap().clone()
    }

    /// Returns whether the store is empty.
    pub(crate) fn is_untouched(&self) -> bool {
        self.store.log().is_empty()
    }
}

/// Takes the caller from `X-User`. All others are anonymous.
pub(crate) fn by_user() -> Principal {
    Principal::from_fn(|parts| {
        let user = parts.headers.get("x-user").and_then(|user| user.to_str().ok());
        Ok(user.map_or_else(Caller::anonymous, Caller::named))
    })
}

/// `/orders` and `/orders/{id}` for all methods, with a handler that obeys headers and counts its runs.
///
/// Headers: `x-sleep` in ms, then `x-panic`, `x-status`, `x-decide` (store or release), and `x-size`, bytes of body.
#[derive(Clone)]
pub(crate) struct Shop {
    router: Router,
    runs: Arc<AtomicU32>,
    pub(crate) attempts: Arc<Mutex<Vec<RequestAttempt>>>,
}

impl Shop {
    pub(crate) fn behind(layer: IdempotencyLayer, clock: impl Clock + Clone) -> Self {
        let runs = Arc::new(AtomicU32::new(0));
        let attempts = Arc::new(Mutex::default());
        let (counted, seen) = (runs.clone(), attempts.clone());
        let handler = move |request: Request| order(counted.clone(), seen.clone(), clock.clone(), request);
        let with_id = handler.clone();
        let router = Router::new()
            .route("/orders", any(handler.clone()))
            .route("/baskets", post(handler))
            .route("/orders/{id}", any(move |_: Path<String>, request: Request| with_id(request)))
            .layer(layer);
        Self { router, runs, attempts }
    }

    pub(crate) fn of(router: Router) -> Self {
        Self { router, runs: Arc::default(), attempts: Arc::default() }
    }

    pub(crate) fn runs(&self) -> u32 {
        self.runs.load(SeqCst)
    }

    pub(crate) fn router(&self) -> Router {
        self.router.clone()
    }
}

async fn order(
    runs: Arc<AtomicU32>,
    attempts: Arc<Mutex<Vec<RequestAttempt>>>,
    clock: impl Clock,
    request: Request,
) -> Response {
    let run = runs.fetch_add(1, SeqCst) + 1;
    attempts.lock().unwrap().extend(request.extensions().get::<RequestAttempt>());
    let headers = request.into_parts().0.headers;
    let told = |name: &str| headers.get(name).map(|value| value.to_str().unwrap().to_owned());
    if let Some(sleep) = told("x-sleep") {
        clock.sleep_until(clock.now() + ms(sleep.parse().unwrap())).await;
    }
    assert!(told("x-panic").is_none(), "as told");
    let status = told("x-status").map_or(201, |status| status.parse().unwrap());
    let size = told("x-size").map_or(0, |size| size.parse().unwrap());
    let body = format!("{run}:{}", "x".repeat(size));
    let mut response = (StatusCode::from_u16(status).unwrap(), body).into_response();
    let location = HeaderValue::try_from(format!("/orders/{run}")).unwrap();
    response.headers_mut().insert(LOCATION, location);
    match told("x-decide").as_deref() {
        Some("store") => response.extensions_mut().insert(Idempotent::store()),
        Some("release") => response.extensions_mut().insert(Idempotent::release()),
        _ => None,
    };
    response
}

/// A request.
#[derive(Clone)]
pub(crate) struct Ask {
    method: Method,
    path: String,
    headers: HeaderMap,
    body: Bytes,
}

/// Creates an order with this key, verbatim.
pub(crate) fn order_by(key: &str) -> Ask {
    ask(Method::POST, "/orders").with("idempotency-key", key)
}

pub(crate) fn ask(method: Method, path: &str) -> Ask {
    Ask { method, path: path.to_owned(), headers: HeaderMap::new(), body: Bytes::from_static(b"{\"sku\":\"tea\"}") }
}

impl Ask {
    /// Adds a header line.
    pub(crate) fn with(self, name: &str, value: impl AsRef<[u8]>) -> Self {
        let mut headers = self.headers;
        let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
        headers.append(name, HeaderValue::from_bytes(value.as_ref()).unwrap());
        Self { headers, ..self }
    }

    /// Replaces the key by bytes.
    pub(crate) fn replaced(mut self, key: &[u8]) -> Self {
        self.headers.insert("idempotency-key", HeaderValue::from_bytes(key).unwrap());
        self
    }

    pub(crate) fn user(self, user: &str) -> Self {
        self.with("x-user", user)
    }

    pub(crate) fn body(self, body: impl Into<Bytes>) -> Self {
        Self { body: body.into(), ..self }
    }

    pub(crate) fn to(self, method: Method, path: &str) -> Self {
        Self { method, path: path.to_owned(), ..self }
    }

    pub(crate) fn request(&self) -> Request {
        self.request_of(Body::from(self.body.clone()))
    }

    pub(crate) fn request_of(&self, body: Body) -> Request {
        let mut request = Request::new(body);
        *request.method_mut() = self.method.clone();
        *request.uri_mut() = self.path.parse().unwrap();
        *request.headers_mut() = self.headers.clone();
        request
    }

    pub(crate) async fn send(&self, shop: &Shop) -> Sent {
        send(shop, self.request()).await
    }

    /// Sends the request in a task that has started on return.
    pub(crate) async fn begin(&self, shop: &Shop, clock: &VirtualClock) -> JoinHandle<Sent> {
        let (ask, shop) = (self.clone(), shop.clone());
        let task = tokio::spawn(async move { ask.send(&shop).await });
        clock.settle().await;
        task
    }
}

pub(crate) async fn send(shop: &Shop, request: Request) -> Sent {
    let (parts, body) = shop.router().oneshot(request).await.unwrap().into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    Sent { status: parts.status.as_u16(), headers: parts.headers, body, extensions: parts.extensions }
}

/// A response.
#[derive(Clone, Debug)]
pub(crate) struct Sent {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    pub(crate) extensions: http::Extensions,
}

impl Sent {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    pub(crate) fn is_replay(&self) -> bool {
        self.header("idempotent-replayed") == Some("true")
    }

    pub(crate) fn retry_after(&self) -> Option<u64> {
        self.header("retry-after").map(|text| text.parse().unwrap())
    }

    /// Checks for the response of the n-th run.
    #[track_caller]
    pub(crate) fn ran(&self, run: u32) -> &Self {
        assert!(self.body.starts_with(format!("{run}:").as_bytes()) && !self.is_replay(), "{self:?}");
        self
    }

    /// Checks for a replay of the n-th run.
    #[track_caller]
    pub(crate) fn replays(&self, run: u32) -> &Self {
        assert!(self.body.starts_with(format!("{run}:").as_bytes()) && self.is_replay(), "{self:?}");
        self
    }

    /// Checks for a problem with this code, in the form of RFC 9457.
    #[track_caller]
    pub(crate) fn problem(&self, status: u16, code: &str) -> &Self {
        assert_eq!(self.status, status, "{self:?}");
        assert_eq!(self.header("content-type"), Some("application/problem+json"), "{self:?}");
        assert_eq!(self.header("cache-control"), Some("no-store"), "{self:?}");
        assert!(!self.is_replay(), "{self:?}");
        let body: serde_json::Value = serde_json::from_slice(&self.body).unwrap();
        assert_eq!(body["code"], code, "{body}");
        assert_eq!(body["status"], status, "{body}");
        assert!(body["type"].as_str().unwrap().ends_with(code), "{body}");
        for member in ["title", "detail"] {
            assert!(body[member].as_str().is_some_and(|text| !text.is_empty()), "{body}");
        }
        assert!(body["retryable"].is_boolean(), "{body}");
        self
    }

    pub(crate) fn told(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap()
    }
}
