//! The memory of a request in flight: `cargo xtask bench http`.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout, missing_docs, unreachable_pub, dead_code)]
#[path = "../core/report.rs"]
mod report;

use std::alloc::System;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::Request;
use axum::routing::post;
use idempotent::http::Principal;
use idempotent::{Executor, IdempotencyLayer, MemoryStore};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use tokio::sync::Semaphore;
use tower::ServiceExt;

use self::report::{Goal, Report};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// The size of each request body.
const BODY: usize = 1_024;
/// The goal without the body.
const GOAL: f64 = 4_096.0;

fn main() {
    let report = Report::from_args("http");
    let case = "heap of a request in flight, beyond its body";
    if !report.wants("memory", case) {
        return;
    }
    let requests = report.keys() / 100;
    let bare = |gate| Router::new().route("/orders", handler(gate));
    let layer = IdempotencyLayer::new(Executor::new(MemoryStore::new()), Principal::none());
    let (value, floor) = (held(|gate| bare(gate).layer(layer), requests), held(bare, requests));
    report.value(("memory", case, None), "B", value, Goal::AtMost(GOAL));
    report.value(("bare", case, None), "B", floor, Goal::None);
}

/// Creates a handler that reads its body and waits.
fn handler(gate: Arc<Semaphore>) -> axum::routing::MethodRouter {
    post(async move |body: Bytes| {
        let _let_in = gate.acquire().await;
        body
    })
}

/// Returns the held bytes for each request while all requests are in flight. Only the service counts, not a connection.
fn held(route: impl FnOnce(Arc<Semaphore>) -> Router, requests: u64) -> f64 {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let gate = Arc::new(Semaphore::new(0));
        // As in `axum::serve`; otherwise, each request would create the layer again.
        let route = route(gate.clone()).with_state::<()>(());
        let mut calls: Vec<Pin<Box<dyn Future<Output = _>>>> = Vec::with_capacity(usize::try_from(requests).unwrap());
        let region = Region::new(ALLOCATOR);
        for number in 0..requests {
            let request = Request::post("/orders")
                .header("idempotency-key", format!("key-{number}"))
                .body(Body::from(vec![b'x'; BODY]))
                .unwrap();
            let mut call = Box::pin(route.clone().oneshot(request));
            let begun = poll_fn(|cx| Poll::Ready(call.as_mut().poll(cx))).await;
            assert!(begun.is_pending(), "its handler waits");
            calls.push(call);
        }
        // Runs in separate tasks have begun, too.
        tokio::task::yield_now().await;
        let change = region.change();
        let bytes = change.bytes_allocated as f64 - change.bytes_deallocated as f64;
        gate.add_permits(1);
        for call in calls {
            assert!(call.await.unwrap().status().is_success());
        }
        bytes / requests as f64 - BODY as f64
    })
}
