//! A hook that panics after the handler has completed does not undo the completion.
use std::convert::Infallible;
use std::panic::panic_any;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::task::{Context, Poll};

use axum::Router;
use axum::body::Body;
use axum::routing::post;
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http::{Request, Response};
use http_body::{Frame, SizeHint};
use http_body_util::BodyExt;
use idempotent_core::Executor;
use idempotent_macros::idempotent;
use idempotent_tower::{
    BodyStore, BodyStoreFuture, Http, HttpRules, IdempotencyKey, RequestBody, ResponseRules, StorePolicy,
};
use tower::{Layer, ServiceExt};

use crate::layer::support::{Shop, World, order_by};

/// The first request gets its response, and a duplicate learns of the completion.
#[tokio::test]
async fn a_panic_of_a_rule_or_of_the_spill_does_not_fail_the_handler() {
    let rules = ResponseRules::default;
    let large = |hostile| rules().max_response(10).spill(hostile, 100);
    let none = Hostile::default();
    for (hook, rules) in [
        ("store policy", rules().store(StorePolicy::By(|_, _| panic!("store")))),
        ("sanitizer", rules().sanitize(|_| panic_any(7))),
        ("sanitizer of a large response", large(none).sanitize(|_| panic!("sanitizer"))),
        ("spill before its future", large(Hostile { asked: true, ..none })),
        ("put", large(Hostile { put: true, ..none })),
        ("get", large(Hostile { get: true, ..none })),
    ] {
        let world = World::new();
        let shop = world.shop_behind(world.layer().response(rules));
        let ask = order_by("a").with("x-size", "20");
        ask.send(&shop).await.ran(1);
        for _ in 0..2 {
            ask.send(&shop).await.problem(409, "response-not-retained");
        }
        assert_eq!(shop.runs(), 1, "{hook}");
    }
}

#[tokio::test]
async fn a_function_that_panics_before_the_claim_leaves_the_key_free() {
    let world = World::new();
    let panics = Arc::new(AtomicBool::new(true));
    let once = panics.clone();
    let route = move |_: &http::request::Parts| {
        assert!(!once.swap(false, SeqCst), "route");
        Some("/orders".to_owned())
    };
    let shop = world.shop_behind(world.layer().route(route));
    let ask = order_by("a");
    let first = std::panic::AssertUnwindSafe(ask.send(&shop));
    assert!(futures_util::FutureExt::catch_unwind(first).await.is_err());
    assert_eq!((shop.runs(), panics.load(SeqCst)), (0, false));
    ask.send(&shop).await.ran(1);
}

#[tokio::test]
async fn a_response_whose_sanitizer_panicked_is_not_replayed() {
    let world = World::new();
    let rules = ResponseRules::default().sanitize(|response| {
        response.headers_mut().remove("location");
        panic!("sanitizer");
    });
    let shop = world.shop_behind(world.layer().response(rules));
    order_by("a").send(&shop).await.ran(1);
    assert_eq!(order_by("a").send(&shop).await.problem(409, "response-not-retained").header("location"), None);
}

/// A body store without bodies, which panics on request.
#[derive(Clone, Copy, Default)]
pub(crate) struct Hostile {
    asked: bool,
    put: bool,
    get: bool,
}

impl BodyStore for Hostile {
    fn put<'a>(&'a self, _: &'a str, _: Bytes) -> BodyStoreFuture<'a, ()> {
        assert!(!self.asked, "asked");
        Box::pin(async { if self.put { panic!("put") } else { Ok(()) } })
    }

    fn get<'a>(&'a self, _: &'a str) -> BodyStoreFuture<'a, Option<Bytes>> {
        assert!(!self.asked, "asked");
        Box::pin(async { if self.get { panic!("get") } else { Ok(None) } })
    }
}

static RULES_PANIC: AtomicBool = AtomicBool::new(false);

/// Returns rules until the handler completes, and then panics.
struct Fickle;

impl HttpRules for Fickle {
    fn rules() -> Arc<ResponseRules> {
        assert!(!RULES_PANIC.load(SeqCst), "rules");
        Arc::default()
    }
}

#[idempotent(scene = rest, key = key, with = executor, tenant = (), fingerprint = (), reply = Http<Fickle>, crate = ::idempotent_core)]
async fn fickle(executor: Executor, key: IdempotencyKey, runs: Arc<AtomicU32>) -> String {
    RULES_PANIC.store(true, SeqCst);
    format!("{}:", runs.fetch_add(1, SeqCst) + 1)
}

#[tokio::test]
async fn a_panic_of_the_rules_does_not_fail_an_annotated_handler() {
    let world = World::new();
    let (executor, runs) = (world.executor.clone(), Arc::new(AtomicU32::new(0)));
    let counted = runs.clone();
    let handler = move |key: IdempotencyKey| fickle(executor.clone(), key, counted.clone());
    let shop = Shop::of(Router::new().route("/orders", post(handler)));
    order_by("a").send(&shop).await.ran(1);
    order_by("a").send(&shop).await.problem(409, "response-not-retained");
    RULES_PANIC.store(false, SeqCst);
    order_by("a").send(&shop).await.problem(409, "response-not-retained");
    assert_eq!(runs.load(SeqCst), 1);
}

#[tokio::test]
async fn a_panic_of_the_rules_does_not_prevent_a_replay_of_an_annotated_handler() {
    /// Returns rules until the response is stored, and then panics.
    struct Late;
    static ASKED: AtomicU32 = AtomicU32::new(0);
    impl HttpRules for Late {
        fn rules() -> Arc<ResponseRules> {
            assert!(ASKED.fetch_add(1, SeqCst) < 2, "rules");
            Arc::default()
        }
    }
    #[idempotent(scene = rest, key = key, with = executor, tenant = (), fingerprint = (), reply = Http<Late>, crate = ::idempotent_core)]
    async fn late(executor: Executor, key: IdempotencyKey) -> &'static str {
        "1:"
    }
    let world = World::new();
    let executor = world.executor.clone();
    let shop = Shop::of(Router::new().route("/orders", post(move |key: IdempotencyKey| late(executor.clone(), key))));
    order_by("a").send(&shop).await.ran(1);
    order_by("a").send(&shop).await.replays(1);
}

#[tokio::test]
async fn a_panic_while_a_body_is_read_does_not_fail_the_handler() {
    let world = World::new();
    let runs = Arc::new(AtomicU32::new(0));
    let counted = runs.clone();
    let handler = async move || {
        counted.fetch_add(1, SeqCst);
        let pieces = stream::iter(0..2).map(|piece| match piece {
            0 => Ok::<_, std::io::Error>(Bytes::from_static(b"first")),
            _ => panic!("body"),
        });
        Body::from_stream(pieces)
    };
    let rules = ResponseRules::default().buffer_unknown(true);
    let shop = Shop::of(Router::new().route("/orders", post(handler)).layer(world.layer().response(rules)));
    let mut response = shop.router().oneshot(order_by("a").request()).await.unwrap();
    let frame = response.body_mut().frame().await.unwrap().unwrap();
    assert_eq!((response.status().as_u16(), &frame.into_data().unwrap()[..]), (200, &b"first"[..]));
    order_by("a").send(&shop).await.problem(409, "response-not-retained");
    assert_eq!(runs.load(SeqCst), 1);
}

/// A body whose size hint panics a given number of times.
struct Unsized(Arc<AtomicU32>);

impl http_body::Body for Unsized {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<std::io::Result<Frame<Bytes>>>> {
        Poll::Ready(None)
    }

    fn size_hint(&self) -> SizeHint {
        let more = self.0.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1));
        assert!(more.is_err(), "size_hint");
        SizeHint::with_exact(0)
    }
}

#[tokio::test]
async fn a_panic_of_a_size_hint_does_not_fail_the_handler() {
    let world = World::new();
    let runs = Arc::new(AtomicU32::new(0));
    let counted = runs.clone();
    let service = tower::service_fn(move |_: Request<RequestBody<Body>>| {
        counted.fetch_add(1, SeqCst);
        std::future::ready(Ok::<_, Infallible>(Response::new(Unsized(Arc::new(AtomicU32::new(1))))))
    });
    let service = world.layer().layer(service);
    for status in [200, 409] {
        assert_eq!(service.clone().oneshot(order_by("a").request()).await.unwrap().status(), status);
    }
    assert_eq!(runs.load(SeqCst), 1);
}
