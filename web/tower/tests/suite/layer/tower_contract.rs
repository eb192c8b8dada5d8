//! The contract of tower services, panicking closures, and nested layers.
use std::convert::Infallible;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::task::{Context, Poll};

use axum::Router;
use axum::body::Body;
use axum::handler::Handler;
use axum::response::Response;
use axum::routing::post;
use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::{Ready, ready};
use idempotent_core::Fingerprint;
use idempotent_tower::{
    IdempotencyKey, IdempotencyLayer, KeyFormat, KeyRules, PayloadCheck, Principal, Problem, RequestAttempt,
    RequestBody, ResponseRules,
};
use tower::{Layer, Service, ServiceExt};

use crate::layer::support::{Shop, World, by_user, order_by, secs};

/// A service that requires `poll_ready` before each call, as tower does. A clone is not ready.
#[derive(Default)]
struct Strict {
    ready: bool,
    calls: Arc<AtomicU32>,
}

impl Clone for Strict {
    fn clone(&self) -> Self {
        Self { ready: false, calls: self.calls.clone() }
    }
}

/// The request type of a service inside the layer.
type Handed = http::Request<RequestBody<Body>>;

impl Service<Handed> for Strict {
    type Response = Response;
    type Error = Infallible;
    type Future = Ready<Result<Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.ready = true;
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Handed) -> Self::Future {
        assert!(std::mem::take(&mut self.ready), "called before it was ready");
        self.calls.fetch_add(1, SeqCst);
        ready(Ok(Response::new(Body::empty())))
    }
}

#[tokio::test]
async fn the_service_that_was_ready_is_the_one_that_is_called() {
    let world = World::new();
    let inner = Strict::default();
    let calls = inner.calls.clone();
    let mut service = world.layer().layer(inner);
    for (key, method) in [("a", http::Method::POST), ("b", http::Method::POST), ("a", http::Method::GET)] {
        let answered = service.ready().await.unwrap().call(order_by(key).to(method, "/").request()).await.unwrap();
        assert_eq!(answered.status(), 200);
    }
    assert_eq!(calls.load(SeqCst), 3);
    let mut clone = service.clone();
    clone.ready().await.unwrap().call(order_by("c").request()).await.unwrap();
}

#[tokio::test]
async fn a_service_that_fails_fails_for_its_caller_and_frees_the_key() {
    let world = World::new();
    let fails = Arc::new(AtomicBool::new(true));
    let failing = fails.clone();
    let inner = tower::service_fn(move |_: Handed| {
        let fails = failing.load(SeqCst);
        async move { if fails { Err(std::io::Error::other("no")) } else { Ok(Response::new(Body::empty())) } }
    });
    let service = world.layer().layer(inner);
    assert_eq!(service.clone().oneshot(order_by("a").request()).await.unwrap_err().to_string(), "no");
    fails.store(false, SeqCst);
    let ran = service.clone().oneshot(order_by("a").request()).await.unwrap();
    assert!(!ran.headers().contains_key("idempotent-replayed"));
    assert!(service.oneshot(order_by("a").request()).await.unwrap().headers().contains_key("idempotent-replayed"));
}

/// Checks that sending panics and claims nothing.
async fn panics(world: &World, layer: IdempotencyLayer) {
    let shop = world.shop_behind(layer);
    let sent = AssertUnwindSafe(order_by("a").send(&shop)).catch_unwind().await;
    assert!(sent.is_err() && shop.runs() == 0);
    world.clock.settle().await;
    assert!(world.is_untouched());
}

#[tokio::test]
async fn panics_of_closures_before_the_run_claim_nothing() {
    let world = World::new();
    let principal = Principal::from_fn(|_| panic!("principal"));
    panics(&world, IdempotencyLayer::new(world.executor.clone(), principal)).await;
    panics(&world, world.layer().route(|_| panic!("route"))).await;
    panics(&world, world.layer().skip(|_| panic!("skip"))).await;
    panics(&world, world.layer().key_from(|_, _| panic!("key"))).await;
    panics(&world, world.layer().payload(PayloadCheck::by(|_, _| panic!("payload")))).await;
    panics(&world, world.layer().key(KeyRules::default().format(KeyFormat::Accepted(|_| panic!("format"))))).await;
}

#[tokio::test]
async fn a_panic_of_the_problem_closure_after_the_run_leaves_no_claim() {
    let world = World::new();
    let shop = world.shop_behind(world.layer().problem_response(|_| panic!("words")));
    let sent = AssertUnwindSafe(order_by("a").with("x-panic", "1").send(&shop)).catch_unwind().await;
    assert!(sent.is_err());
    order_by("a").send(&world.shop()).await.ran(1);
}

#[tokio::test]
async fn a_nested_layer_with_the_same_identity_is_rejected_and_named() {
    let world = World::new();
    let runs = Arc::new(AtomicU32::new(0));
    let counted = runs.clone();
    let handler = async move || counted.fetch_add(1, SeqCst).to_string();
    let app = Router::new().route("/nested", post(handler)).layer(world.layer()).layer(world.layer());
    let sent = order_by("a").to(http::Method::POST, "/nested").send(&Shop::of(app)).await;
    sent.problem(500, "misconfigured");
    assert_eq!((runs.load(SeqCst), world.executor.counts().of("nested")), (0, 1));
}

#[tokio::test]
async fn a_nested_layer_with_its_own_identity_runs_once_with_it() {
    let world = World::new();
    let handler = async |attempt: Option<RequestAttempt>| format!("1:{}", attempt.is_some());
    let inner = world.layer().namespace("inner");
    let shop = Shop::of(Router::new().route("/orders", post(handler)).layer(inner).layer(world.layer()));
    order_by("a").send(&shop).await.ran(1);
    let replay = order_by("a").send(&shop).await;
    replay.replays(1);
    assert_eq!(world.executor.counts().of("replayed"), 1, "by the outer one alone");
}

fn own_words(problem: Problem) -> http::Response<Bytes> {
    let mut response = problem.to_response();
    response.extensions_mut().clear();
    response
}

#[tokio::test]
async fn an_outer_layer_never_stores_a_problem_of_an_inner_one() {
    let world = World::new();
    for words in [false, true] {
        let name = format!("inner-{words}");
        let inner = world.layer().namespace(name.clone());
        let inner = if words { inner.problem_response(own_words) } else { inner };
        let shop = world.shop_behind(inner.clone());
        let all = ResponseRules::default().store(idempotent_tower::StorePolicy::All);
        let outer = world.layer().namespace(format!("outer-{words}")).response(all);
        let both = Shop::of(shop.router().layer(outer));
        let slow = order_by("a").with("x-sleep", "1000");
        let first = slow.begin(&shop, &world.clock).await;
        slow.send(&both).await.problem(409, "in-flight");
        world.clock.advance(secs(1)).await;
        first.await.unwrap().ran(1);
        // The replay of the inner layer is the first response of the outer one, which adds no mark.
        slow.send(&both).await.ran(1);
        slow.send(&both).await.replays(1);
    }
}

#[tokio::test]
async fn the_handler_sees_the_key_as_the_layer_read_it() {
    let world = World::new();
    let rules = KeyRules::default().header(http::HeaderName::from_static("x-id"));
    let handler = async |key: IdempotencyKey| format!("1:{}", key.as_str());
    let shop = Shop::of(Router::new().route("/orders", post(handler)).layer(world.layer().key(rules)));
    let sent = crate::layer::support::ask(http::Method::POST, "/orders").with("x-id", "\"a b\"").send(&shop).await;
    assert_eq!(&sent.body[..], b"1:a b");
    assert_eq!(
        format!("{:?}", KeyRules::default().checked("SECRET".to_owned()).unwrap()),
        "IdempotencyKey(6 characters)"
    );
}

#[tokio::test]
async fn the_handler_runs_in_the_executor_scope_of_its_caller() {
    let world = World::new();
    let clock = world.clock.clone();
    let handler = async move || {
        idempotent_core::Clock::sleep_until(&clock, idempotent_core::Clock::now(&clock) + secs(1)).await;
        let lease = idempotent_core::Lease::current().is_some();
        let executor = idempotent_core::Executor::current().is_some();
        format!("1:{lease}{executor}")
    };
    let shop = Shop::of(Router::new().route("/orders", post(handler)).layer(world.layer()));
    let executor = world.executor.clone();
    let sent = tokio::spawn(async move { executor.scope(order_by("a").send(&shop)).await });
    world.clock.advance(secs(1)).await;
    assert_eq!(&sent.await.unwrap().body[..], b"1:truetrue", "also behind the point where it was detached");
}

#[test]
fn the_debug_output_of_a_layer_contains_no_secrets() {
    let world = World::new();
    let layer = IdempotencyLayer::new(world.executor.clone(), by_user())
        .payload(PayloadCheck::by(|_, _| Some(Fingerprint::of_bytes(""))));
    let shown = format!("{layer:?}");
    assert!(shown.contains("Principal::from_fn") && shown.contains("PayloadCheck::by"), "{shown}");
}

#[tokio::test]
async fn axum_accepts_the_layer_in_every_position() {
    let world = World::new();
    let handler = async |body: Bytes| format!("1:{}", body.len());
    let layer = || world.layer();
    let routers = [
        Router::new().route("/orders", post(handler)).layer(layer()),
        Router::new().route("/orders", post(handler)).route_layer(layer()),
        Router::new().route("/orders", post(handler).layer(layer())),
        Router::new().route("/orders", post(handler).route_layer(layer())),
        Router::new().route("/orders", post(handler.layer(layer()))),
        Router::new().route_service("/orders", layer().layer(post(handler))),
        Router::new().fallback_service(layer().layer(Router::new().route("/orders", post(handler)))),
        Router::new().merge(Router::new().route("/orders", post(handler)).layer(layer())).layer(layer().skip(|_| true)),
    ];
    for (number, router) in routers.into_iter().enumerate() {
        let (shop, ask) = (Shop::of(router), order_by(&format!("k{number}")));
        ask.send(&shop).await.ran(1);
        ask.send(&shop).await.replays(1);
    }
}
