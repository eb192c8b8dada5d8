//! Layer and attribute together: they share one engine, one store and one form of records.
use idempotent_core::{Identity, Key, Scene, StateKind};

use super::*;

#[idempotent(
    scene = rest,
    scope = "orders",
    key = key,
    tenant = Caller::named("ada"),
    with = app,
    fingerprint = (), reply = Http,
    crate = ::idempotent_core,
)]
async fn annotated(State(app): State<App>, key: IdempotencyKey) -> impl IntoResponse {
    (StatusCode::CREATED, [(header::LOCATION, "/orders/1")], format!("run {}", app.ran()))
}

async fn bare(State(app): State<App>) -> impl IntoResponse {
    (StatusCode::CREATED, [(header::LOCATION, "/orders/1")], format!("run {}", app.ran()))
}

fn layer(app: &App) -> IdempotencyLayer {
    let ada = Principal::from_fn(|_| Ok(Caller::named("ada")));
    IdempotencyLayer::new(app.executor.clone(), ada).payload(PayloadCheck::off())
}

fn identity(scope: &'static str) -> Key {
    Identity::new(Scene::Rest, scope, "once").tenant(&Caller::named("ada")).key("idempotent").unwrap()
}

async fn state(app: &App, scope: &'static str) -> Option<StateKind> {
    app.executor.store().peek(&identity(scope)).await.unwrap().map(|record| record.state.kind())
}

#[tokio::test]
async fn layer_and_attribute_write_equal_records_and_replay_each_others() {
    let app = App::new();
    let layered = at(&app, "/orders", bare).layer(layer(&app).scope("orders"));
    let annotated = at(&app, "/orders", annotated);
    for (key, first, second) in [("once", &layered, &annotated), ("twice", &annotated, &layered)] {
        let ran = order(first, key, 1).await;
        assert_eq!(ran.status, 201);
        order(second, key, 1).await.assert_replays(&ran);
        app.assert_runs(1);
    }
    assert_eq!(state(&app, "orders").await, Some(StateKind::Consumed));
    let counts = app.executor.counts();
    assert_eq!((counts.of("ran"), counts.of("replayed")), (2, 2));
}

#[tokio::test]
async fn with_different_scopes_both_store_a_record() {
    let app = App::new();
    let service = at(&app, "/orders", annotated).layer(layer(&app).scope("outer"));
    once(&app, &service).await;
    assert_eq!(state(&app, "orders").await, Some(StateKind::Consumed));
    assert_eq!(state(&app, "outer").await, Some(StateKind::Consumed));
    let counts = app.executor.counts();
    assert_eq!((counts.of("ran"), counts.of("replayed")), (2, 1));
}

#[tokio::test]
async fn with_the_same_identity_the_inner_run_is_rejected_and_the_key_is_free() {
    let app = App::new();
    let service = at(&app, "/orders", annotated).layer(layer(&app).scope("orders"));
    order(&service, "once", 1).await.assert_problem(500, "misconfigured");
    app.assert_runs(0);
    assert_eq!(app.executor.counts().of("nested"), 1);
    assert_eq!(state(&app, "orders").await, None);
    // The inner handler runs without the layer.
    once(&app, &at(&app, "/orders", annotated)).await;
}

#[idempotent(
    scene = rest,
    scope = "inner",
    key = key,
    with = app,
    tenant = (), fingerprint = (), reply = Http,
    crate = ::idempotent_core,
)]
async fn decided(State(app): State<App>, key: IdempotencyKey) -> impl IntoResponse {
    app.ran();
    (StatusCode::PAYMENT_REQUIRED, Idempotent::store(), "declined")
}

#[tokio::test]
async fn the_decision_of_the_handler_reaches_the_layer_through_the_attribute() {
    let app = App::new();
    let service = at(&app, "/orders", decided).layer(layer(&app).scope("outer"));
    assert_eq!(once(&app, &service).await.status, 402);
    assert_eq!(state(&app, "outer").await, Some(StateKind::Consumed));
}

mod stock {
    use super::*;

    #[idempotent(scene = rest, key = key, tenant = (), with = app, crate = ::idempotent_core)]
    pub(super) async fn book(app: &App, key: &IdempotencyKey) -> Result<u32, idempotent_core::Rejection> {
        app.ran();
        Ok(1)
    }
}

mod ledger {
    use super::*;

    #[idempotent(scene = rest, key = key, tenant = (), with = app, crate = ::idempotent_core)]
    pub(super) async fn book(app: &App, key: &IdempotencyKey) -> Result<u32, idempotent_core::Rejection> {
        app.ran();
        Ok(2)
    }
}

#[idempotent(
    scene = rest,
    key = key,
    with = app,
    tenant = (), fingerprint = (), reply = Http,
    crate = ::idempotent_core,
)]
async fn purchase(State(app): State<App>, key: IdempotencyKey) -> impl IntoResponse {
    app.ran();
    let booked = (stock::book(&app, &key).await.unwrap(), ledger::book(&app, &key).await.unwrap());
    (StatusCode::CREATED, format!("{booked:?}"))
}

/// A key of the header that all of them shared would answer the second function with the result of the first one.
#[tokio::test]
async fn functions_of_one_name_that_use_the_key_of_one_header_run_once_each() {
    let app = App::new();
    let service = at(&app, "/orders", purchase);
    let ran = order(&service, "once", 1).await;
    assert_eq!((ran.status, &*ran.body), (201, b"(1, 2)".as_slice()));
    app.assert_runs(3);
    order(&service, "once", 1).await.assert_replays(&ran);
    app.assert_runs(0);
}
