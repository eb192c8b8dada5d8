//! The response to a client whose handler did not run, or whose run does not count.
use std::time::Duration;

use futures_util::FutureExt;
use idempotent_testkit::{FOREVER, FaultStore, StoreOperation, VirtualClock};

use super::*;

#[idempotent(
    scene = rest,
    scope = "held",
    key = key,
    fingerprint = order,
    with = app,
    tenant = (), reply = Http,
    detach,
    crate = ::idempotent_core,
)]
async fn held(State(app): State<App>, key: IdempotencyKey, Json(order): Json<Order>) -> impl IntoResponse {
    let run = app.held().await;
    (StatusCode::CREATED, format!("run {run}"))
}

#[idempotent(
    scene = rest,
    scope = "held",
    key = key,
    with = app,
    tenant = (), fingerprint = (), reply = Http,
    on_in_flight = wait("30s"),
    crate = ::idempotent_core,
)]
async fn waiting(State(app): State<App>, key: IdempotencyKey) -> impl IntoResponse {
    app.ran();
}

#[idempotent(
    scene = rest,
    scope = "held",
    key = key,
    with = app,
    tenant = (), fingerprint = (), reply = Http,
    on_in_flight = wait("30s"),
    detach,
    crate = ::idempotent_core,
)]
async fn waiting_detached(State(app): State<App>, key: IdempotencyKey) -> impl IntoResponse {
    let run = app.held().await;
    if run == 1 { Err(StatusCode::BAD_GATEWAY) } else { Ok(format!("run {run}")) }
}

/// Starts an order and returns when its handler runs.
async fn begin(app: &App, service: &Router) -> tokio::task::JoinHandle<Answer> {
    let service = service.clone();
    let first = tokio::spawn(async move { order(&service, "k", 1).await });
    app.begun.notified().await;
    first
}

#[tokio::test]
async fn a_duplicate_in_flight_receives_retry_after() {
    let app = App::new();
    let service = at(&app, "/orders", held);
    let first = begin(&app, &service).await;
    let duplicate = order(&service, "k", 1).await;
    duplicate.assert_problem(409, "in-flight");
    assert!(duplicate.header("retry-after").parse::<u64>().unwrap() >= 1);
    assert_eq!(duplicate.json()["retryable"], true);
    // A different payload is rejected first, because no retry helps.
    let other = order(&service, "k", 2).await;
    other.assert_problem(422, "key-reused");
    assert_eq!(other.header("retry-after"), "");
    app.door.notify_one();
    let first = first.await.unwrap();
    order(&service, "k", 1).await.assert_replays(&first);
    app.assert_runs(1);
}

#[tokio::test]
async fn a_duplicate_that_waits_receives_the_response() {
    let app = App::new();
    let first = begin(&app, &at(&app, "/orders", held)).await;
    let service = at(&app, "/orders", waiting);
    let (replayed, ()) = tokio::join!(biased; order(&service, "k", 1), async { app.door.notify_one() });
    replayed.assert_replays(&first.await.unwrap());
    app.assert_runs(1);
}

#[tokio::test]
async fn a_disconnect_does_not_stop_a_detached_run_and_the_retry_receives_the_response() {
    let app = App::new();
    let service = at(&app, "/orders", held);
    let first = begin(&app, &service).await;
    first.abort();
    assert!(first.await.unwrap_err().is_cancelled());
    order(&service, "k", 1).await.assert_problem(409, "in-flight");
    app.door.notify_one();
    let replayed = loop {
        match order(&service, "k", 1).await {
            running if running.status == 409 => tokio::task::yield_now().await,
            replayed => break replayed,
        }
    };
    assert_eq!((replayed.status, &*replayed.body, replayed.is_replayed()), (201, &b"run 1"[..], true));
    app.assert_runs(1);
}

#[tokio::test]
async fn a_detached_call_that_waits_is_dropped_with_its_client_until_it_runs() {
    let app = App::new();
    let service = at(&app, "/orders", waiting_detached);
    let first = begin(&app, &service).await;
    // One poll brings the call to its wait.
    assert!(order(&service, "k", 1).now_or_never().is_none());
    assert_eq!(app.executor.counts().of("cancelled"), 1);
    app.door.notify_one();
    assert_eq!(first.await.unwrap().status, 502);
    // The dropped duplicate does not take over: this request runs, and completes.
    let second = begin(&app, &service).await;
    app.assert_runs(2);
    second.abort();
    assert!(second.await.unwrap_err().is_cancelled());
    app.door.notify_one();
    let replayed = order(&service, "k", 1).await;
    assert_eq!((replayed.status, &*replayed.body, replayed.is_replayed()), (200, &b"run 2"[..], true));
    app.assert_runs(0);
}

#[idempotent(scene = rest, scope = "panic", key = key, with = app, tenant = (), fingerprint = (), reply = Http, crate = ::idempotent_core)]
async fn panicking(State(app): State<App>, key: IdempotencyKey) -> String {
    let run = app.ran();
    assert!(run > 1, "as told");
    format!("run {run}")
}

#[idempotent(scene = rest, scope = "panic", key = key, with = app, tenant = (), fingerprint = (), reply = Http, detach, crate = ::idempotent_core)]
async fn panicking_elsewhere(State(app): State<App>, key: IdempotencyKey) -> String {
    let run = app.ran();
    assert!(run > 1, "as told");
    format!("run {run}")
}

#[tokio::test]
async fn a_panic_propagates_to_the_server_and_frees_the_key() {
    let services: [Built; 2] = [|app| at(app, "/orders", panicking), |app| at(app, "/orders", panicking_elsewhere)];
    for service in services {
        let app = App::new();
        let service = service(&app);
        let first = tokio::spawn(async move { (order(&service, "k", 1).await, service) }).await;
        assert!(first.unwrap_err().is_panic());
        let service = at(&app, "/orders", panicking);
        assert_eq!(order(&service, "k", 1).await.body, "run 2");
        app.assert_runs(2);
    }
}

#[idempotent(scene = rest, scope = "found", key = key, tenant = (), fingerprint = (), reply = Http, crate = ::idempotent_core)]
async fn found(State(app): State<App>, key: IdempotencyKey) -> String {
    format!("run {}", app.ran())
}

#[tokio::test]
async fn without_an_executor_nothing_runs_and_one_in_scope_is_found() {
    let app = App::new();
    let service = at(&app, "/orders", found);
    let refused = order(&service, "once", 1).await;
    refused.assert_problem(500, "misconfigured");
    assert!(!refused.json()["detail"].as_str().unwrap().contains("executor"), "not the client's business");
    app.assert_runs(0);
    app.executor.scope(once(&app, &service)).await;
}

/// A service with a fault-injecting store and a virtual clock.
fn faulty() -> (App, FaultStore, VirtualClock) {
    let clock = VirtualClock::new();
    let store = FaultStore::new(MemoryStore::builder().clock(Arc::new(clock.clone())).build(), &clock);
    let executor = Executor::builder(store.clone()).clock(Arc::new(clock.clone())).build().unwrap();
    (App::over(executor), store, clock)
}

#[tokio::test]
async fn during_an_outage_nothing_runs_and_the_client_may_retry() {
    let (app, store, clock) = faulty();
    let service = at(&app, "/orders", found);
    store.fail_before(StoreOperation::Claim, FOREVER);
    let (executor, asking) = (app.executor.clone(), service.clone());
    let refused = tokio::spawn(async move { executor.scope(order(&asking, "once", 1)).await });
    clock.settle().await;
    clock.advance(Duration::from_secs(60)).await; // it tries again for a while
    let refused = refused.await.unwrap();
    refused.assert_problem(503, "store-unavailable");
    assert_eq!(refused.header("retry-after"), "1");
    app.assert_runs(0);
    store.heal();
    app.executor.scope(once(&app, &service)).await;
}

#[idempotent(
    scene = rest,
    scope = "held",
    key = key,
    with = app,
    tenant = (), fingerprint = (), reply = Http,
    on_lease_lost = abort,
    crate = ::idempotent_core,
)]
async fn stopping(State(app): State<App>, key: IdempotencyKey) -> impl IntoResponse {
    let run = app.held().await;
    (StatusCode::CREATED, format!("run {run}"))
}

#[tokio::test]
async fn a_run_that_loses_its_lease_responds_unless_it_is_configured_to_abort() {
    let cases: [(Built, u16); 2] = [(|app| at(app, "/orders", stopping), 503), (|app| at(app, "/orders", held), 201)];
    for (service, status) in cases {
        let (app, store, clock) = faulty();
        store.fail_before(StoreOperation::Renew, FOREVER);
        let first = begin(&app, &service(&app)).await;
        clock.settle().await;
        clock.advance(Duration::from_secs(27)).await; // 30 s less the guard's tenth
        assert_eq!(first.is_finished(), status == 503);
        app.door.notify_one();
        clock.settle().await;
        let answer = first.await.unwrap();
        match status {
            503 => answer.assert_problem(503, "interrupted"),
            _ => assert_eq!((answer.status, &*answer.body), (status, &b"run 1"[..])),
        }
        app.assert_runs(1);
    }
}
