//! The operations whose costs are counted, with their goals.
use std::alloc::System;
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::Router;
use axum::body::Body;
use axum::http::Request;
use axum::routing::post;
use idempotent::http::Principal;
use idempotent::mq::{Consumer, HandlerResult, KeyFrom, MemoryQueue, Message, MessageHandler, Messages};
use idempotent::reply::DefaultReply;
use idempotent::store::{ClaimRequest, Store};
use idempotent::{BatchItem, Call, Executor, Handler, IdempotencyLayer, Json, MemoryStore, RedisStore, Rejection};
use idempotent_harness::servers::RedisServer;
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use tokio::runtime::Runtime;
use tokio::sync::Notify;
use tower::ServiceExt;

use crate::keys;

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// A kind of operation.
pub struct Case {
    pub of: &'static str,
    pub name: &'static str,
    /// The number of concurrent handlers or callers.
    pub at: usize,
    /// The number of operations in a run.
    pub operations: u64,
    /// The most instructions and allocations of an operation.
    pub goals: (Option<f64>, Option<f64>),
    pub is_split: bool,
    pub run: fn(usize, u64),
}

impl Case {
    pub fn title(&self) -> String {
        format!("{} {}, {}", self.of, self.name, self.at)
    }

    /// Runs the case, and returns the number of its allocations.
    pub fn allocations(&self) -> u64 {
        (self.run)(self.at, self.operations);
        ALLOCATIONS.load(Ordering::Relaxed)
    }
}

const fn case(of: &'static str, name: &'static str, at: usize, run: fn(usize, u64)) -> Case {
    Case { of, name, at, operations: 4_000, goals: (None, None), is_split: true, run }
}

const fn unsplit(case: Case) -> Case {
    Case { is_split: false, ..case }
}

const fn goal(case: Case, instructions: f64, allocations: f64) -> Case {
    Case { goals: (Some(instructions), Some(allocations)), ..case }
}

/// The goals of the consumer at 8 are .45 and .5 of the counts of commit 49ee37f by this program, 45,101 and 18,839.
pub const CASES: [Case; 13] = [
    unsplit(case("consumer", "keyed", 1, keyed)),
    goal(case("consumer", "keyed", 8, keyed), 20_295.0, 14.0),
    unsplit(case("consumer", "keyed", 64, keyed)),
    unsplit(case("consumer", "unprotected", 1, unprotected)),
    goal(case("consumer", "unprotected", 8, unprotected), 9_420.0, 7.0),
    unsplit(case("consumer", "unprotected", 64, unprotected)),
    Case { goals: (Some(4_000.0), None), ..case("consumer", "in batches of 64", 64, batches) },
    goal(case("executor", "fresh", 1, fresh), 8_000.0, 6.0),
    goal(case("executor", "duplicate", 1, duplicate), 4_000.0, 3.0),
    case("http", "bare route", 1, bare_route),
    case("http", "fresh", 1, request),
    case("http", "replay", 1, replay),
    case("redis", "fresh, client side", 1, redis),
];

/// The allocations of the last measured work.
static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

fn counted<T>(work: impl FnOnce() -> T) -> T {
    let region = Region::new(ALLOCATOR);
    let result = measured(work);
    let change = region.change();
    ALLOCATIONS.store((change.allocations + change.reallocations) as u64, Ordering::Relaxed);
    result
}

/// Runs the work. Callgrind counts only here.
#[inline(never)]
fn measured<T>(work: impl FnOnce() -> T) -> T {
    black_box(work())
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

/// Creates an executor whose store has keys, so that few runs pay for the growth of a map.
fn executor() -> Executor {
    let store = MemoryStore::builder().max_entries(usize::MAX).build();
    runtime().block_on(async {
        for number in 0..20_000 {
            let key = keys::identity(u64::MAX - number).key("others").unwrap();
            store.claim(&ClaimRequest::new(key).unwrap()).await.unwrap();
        }
    });
    Executor::new(store)
}

fn keyed(at: usize, messages: u64) {
    consume(at, messages, |done| {
        let handle = move |_: Message<()>| std::future::ready(done());
        Messages::raw().keyed(KeyFrom::message_id()).run(handle)
    });
}

fn unprotected(at: usize, messages: u64) {
    consume(at, messages, |done| Messages::raw().unprotected(move |_: Message<()>| std::future::ready(done())));
}

fn batches(at: usize, messages: u64) {
    consume(at, messages, |done| {
        Messages::raw().keyed(KeyFrom::message_id()).run_batch(64, move |items: Vec<BatchItem<Message<()>>>| {
            std::future::ready((0..items.len()).map(|_| done()).collect::<Vec<_>>())
        })
    });
}

/// Consumes messages that a queue in memory already has.
fn consume(
    at: usize,
    messages: u64,
    handling: impl FnOnce(Arc<dyn Fn() -> HandlerResult + Send + Sync>) -> MessageHandler,
) {
    let runtime = runtime();
    let queue = MemoryQueue::new("orders");
    (0..messages).for_each(|_| queue.send("a body of an order"));
    let left = AtomicU64::new(messages);
    let last = Arc::new(Notify::new());
    let done = {
        let last = last.clone();
        move || {
            if left.fetch_sub(1, Ordering::Relaxed) == 1 {
                last.notify_one();
            }
            HandlerResult::Done
        }
    };
    let executor = executor();
    let handling = handling(Arc::new(done));
    let consumer = Consumer::builder(queue.source(), "orders", &executor).concurrency(at).prefetch(2 * at);
    let consumer = consumer.build(handling).unwrap();
    let counts = counted(|| runtime.block_on(consumer.run(async move { last.notified().await }))).unwrap();
    assert_eq!(counts.acked, messages);
}

async fn run(executor: &Executor, number: u64) {
    let handler = Handler::<DefaultReply, Json, _, _>::new(|| async { Ok::<(), Rejection>(()) });
    executor.run(Call::new(keys::identity(number)), handler).await.unwrap();
}

/// Counts runs with these keys, after a run with the last of all keys.
fn runs(runtime: &Runtime, executor: &Executor, keys: impl Iterator<Item = u64>) {
    runtime.block_on(run(executor, u64::MAX));
    counted(|| {
        runtime.block_on(async {
            for number in keys {
                run(executor, number).await
            }
        })
    });
}

fn fresh(_: usize, count: u64) {
    let executor = executor();
    runs(&runtime(), &executor, 0..count);
    assert_eq!(executor.counts().of("ran"), count + 1);
}

fn duplicate(_: usize, count: u64) {
    let executor = executor();
    runs(&runtime(), &executor, (0..count).map(|_| u64::MAX));
    assert_eq!(executor.counts().of("ran"), 1);
}

fn route() -> Router {
    Router::new().route("/orders", post(async |body: String| body))
}

fn bare_route(_: usize, requests: u64) {
    send(&route(), requests, |number| number);
}

fn request(_: usize, requests: u64) {
    send(&protected(), requests, |number| number);
}

fn replay(_: usize, requests: u64) {
    send(&protected(), requests, |_| 0);
}

fn protected() -> Router {
    let executor = executor();
    route().layer(IdempotencyLayer::new(executor, Principal::none()))
}

/// Calls the service, after a call with the key 0. Sockets are not a part of it.
fn send(route: &Router, requests: u64, key: fn(u64) -> u64) {
    let route = route.clone().with_state::<()>(());
    let runtime = runtime();
    let send = async |key: u64| {
        let request = Request::post("/orders").header("idempotency-key", format!("key-{key}"));
        let response = route.clone().oneshot(request.body(Body::from("{\"sku\":\"tea\"}")).unwrap()).await.unwrap();
        assert!(response.status().is_success());
    };
    runtime.block_on(send(0));
    counted(|| {
        runtime.block_on(async {
            for number in 1..=requests {
                send(key(number)).await
            }
        })
    });
}

fn redis(_: usize, count: u64) {
    let server = RedisServer::start();
    let runtime = runtime();
    let store = runtime.block_on(RedisStore::builder(server.url()).connect()).unwrap();
    let executor = Executor::builder(store).build().unwrap();
    runs(&runtime, &executor, 0..count);
    assert_eq!(executor.counts().of("ran"), count + 1);
}
