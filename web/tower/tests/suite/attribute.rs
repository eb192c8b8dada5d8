//! The attribute on axum handlers: arguments, return types, and the responses that clients receive.
mod extractors;
mod failed_if;
mod handler_forms;
mod languages;
mod layers;
mod rejections;
mod replays;
mod return_types;
mod whole_request;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{Extension, Path, Query, State};
use axum::handler::Handler;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Request, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router};
use idempotent_core::{Executor, Fingerprint, MemoryStore, Rejection};
use idempotent_macros::idempotent;
use idempotent_tower::{
    AxumJson, Caller, Denied, Http, HttpRules, IdempotencyKey, IdempotencyLayer, Idempotent, PayloadCheck, Principal,
    Problem, ProblemKind, ReplayHeader, ResponseRules,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::sync::Notify;
use tower::ServiceExt;

/// The state of the service.
#[derive(Clone)]
struct App {
    executor: Executor,
    runs: Arc<AtomicU32>,
    begun: Arc<Notify>,
    door: Arc<Notify>,
}

impl App {
    fn new() -> Self {
        Self::over(Executor::new(MemoryStore::new()))
    }

    fn over(executor: Executor) -> Self {
        Self { executor, runs: Arc::default(), begun: Arc::default(), door: Arc::default() }
    }

    /// Counts a run, and returns its number.
    fn ran(&self) -> u32 {
        self.runs.fetch_add(1, SeqCst) + 1
    }

    /// Signals that the handler runs, and waits until it may continue.
    async fn held(&self) -> u32 {
        let run = self.ran();
        self.begun.notify_one();
        self.door.notified().await;
        run
    }

    #[track_caller]
    fn assert_runs(&self, wanted: u32) {
        assert_eq!(self.runs.swap(0, SeqCst), wanted, "runs of the handler");
    }
}

impl AsRef<Executor> for App {
    fn as_ref(&self) -> &Executor {
        &self.executor
    }
}

#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
struct Order {
    sku: String,
    qty: u32,
}

/// The response that a client receives.
#[derive(Clone, Debug, PartialEq)]
struct Answer {
    status: u16,
    headers: HeaderMap,
    body: Bytes,
}

impl Answer {
    async fn of(response: Response) -> Self {
        let (parts, body) = response.into_parts();
        let body = to_bytes(body, 1 << 24).await.unwrap();
        Self { status: parts.status.as_u16(), headers: parts.headers, body }
    }

    fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    fn is_replayed(&self) -> bool {
        self.headers.contains_key("idempotent-replayed")
    }

    /// Checks for a replay that otherwise equals `first`.
    #[track_caller]
    fn assert_replays(mut self, first: &Self) {
        assert_eq!(self.headers.remove("idempotent-replayed").unwrap(), "true");
        assert_eq!(&self, first);
    }

    #[track_caller]
    fn assert_problem(&self, status: u16, code: &str) {
        assert_eq!(self.status, status, "{self:?}");
        assert_eq!(self.header("content-type"), "application/problem+json");
        assert_eq!(self.header("cache-control"), "no-store");
        assert_eq!(self.json()["code"], code);
    }
}

/// Creates a service with this state.
type Built = fn(&App) -> Router;

/// Creates a service with one route.
fn at<H: Handler<T, App>, T: 'static>(app: &App, route: &str, handler: H) -> Router {
    Router::new().route(route, post(handler)).with_state(app.clone())
}

fn request(uri: &str, key: &str, body: impl Into<Body>) -> Request<Body> {
    let request = Request::post(uri).header("content-type", "application/json");
    let request = if key.is_empty() { request } else { request.header("idempotency-key", key) };
    request.body(body.into()).unwrap()
}

async fn send(service: &Router, request: Request<Body>) -> Answer {
    Answer::of(service.clone().oneshot(request).await.unwrap()).await
}

/// Creates an order of this many teapots, with a key.
async fn order(service: &Router, key: &str, qty: u32) -> Answer {
    send(service, request("/orders", key, format!(r#"{{"sku":"teapot","qty":{qty}}}"#))).await
}

/// Orders twice, and checks for one run and equal responses.
async fn once(app: &App, service: &Router) -> Answer {
    let first = order(service, "once", 1).await;
    assert!(!first.is_replayed());
    order(service, "once", 1).await.assert_replays(&first);
    app.assert_runs(1);
    first
}
