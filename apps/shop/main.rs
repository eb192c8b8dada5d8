//! A small order service that receives repeated requests: double clicks, retries, and proxies that retry.
//!
//! ```text
//! cargo run --release -p idempotent-shop -- --listen 127.0.0.1:8080       # and open http://127.0.0.1:8080
//! cargo run --release -p idempotent-shop --features redis -- --store redis://127.0.0.1:6379      # a shared store
//! curl -i -H 'Idempotency-Key: k1' -H 'Content-Type: application/json' \
//!      -d '{"sku":"tea","qty":2}' http://127.0.0.1:8080/orders             # again: the same response, replayed
//! curl 'http://127.0.0.1:8080/executions?sku=tea'                         # once, since the start of this process
//! ```
//!
//! | route | duplicates are recognized by |
//! |---|---|
//! | `POST /orders`, `PATCH /orders/{id}`, `POST /blob` | `Idempotency-Key`, required |
//! | `POST /optional` | `Idempotency-Key`, optional |
//! | `POST /charges` | `Idempotency-Key`, in an annotated handler |
//! | `POST /submit` | a token from `GET /token`, in `X-Idempotent-Token` |
//! | `POST /param` | the content of the request |
//!
//! This file contains the idempotent part: one annotated handler, plain handlers, and the router that adds layers to
//! the plain ones. The other files are the rest of a service: the command line (`args.rs`), the caller (`caller.rs`),
//! the orders (`order.rs`, `shop.rs`), counters and a page (`numbers.rs`, `page.rs`), and the shutdown (`serve.rs`).
mod args;
mod caller;
mod numbers;
mod order;
mod page;
mod serve;
mod shop;

use std::process::ExitCode;

use anyhow::{Context, anyhow};
use axum::body::Bytes;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, patch, post};
use axum::{Json, Router};
use clap::Parser;
use idempotent::http::Problem;
use idempotent::{ConnectError, Executor, Http, IdempotencyKey, IdempotencyLayer, Scene, Tokens, Tracing, idempotent};
use serde::Deserialize;
use serde_json::json;
use tokio::net::TcpListener;
use tracing_subscriber::filter::LevelFilter;

use self::args::Args;
use self::caller::User;
use self::numbers::KeyCounters;
use self::order::{Order, OrderFailed};
use self::shop::Shop;

// The page shows the code between the two marks.
// [shown]
/// Places an order. The handler does not know about keys; its layer runs it once for each.
async fn order(State(shop): State<Shop>, Json(order): Json<Order>) -> Result<Response, OrderFailed> {
    let id = shop.place(&order).await?;
    Ok(order.placed(StatusCode::CREATED, &id))
}

/// Places an order, protected by the attribute instead of a layer. Key and caller are extractors, and a key that was
/// used for a different order is rejected.
#[idempotent(
    scene = rest, scope = "charge", with = shop, tenant = caller, key = key, fingerprint = order, reply = Http, detach
)]
async fn charge(
    State(shop): State<Shop>,
    User(caller): User,
    key: IdempotencyKey,
    Json(order): Json<Order>,
) -> Result<Response, OrderFailed> {
    let id = shop.place(&order).await?;
    Ok(order.placed(StatusCode::CREATED, &id))
}

/// Creates the routes and their layers. Outer layers, such as tracing, authentication, timeouts and compression, would
/// wrap these.
fn router(shop: &Shop, args: &Args) -> Router<Shop> {
    let executor: &Executor = shop.as_ref();
    let keys = IdempotencyLayer::new(executor.clone(), caller::principal()).docs_link("/");
    let tokens = IdempotencyLayer::by_token(shop.tokens().clone(), caller::principal());
    let params = IdempotencyLayer::by_param(executor.clone(), caller::principal())
        .window(args.param_window)
        .message("The same order was placed a moment ago.");

    let keyed = Router::new()
        .route("/orders", post(order))
        .route("/orders/{id}", patch(change))
        .route("/blob", post(blob))
        .route_layer(keys.clone());
    let optional = Router::new().route("/optional", post(order)).route_layer(keys.required(false));
    let by_token = Router::new().route("/submit", post(order)).route_layer(tokens);
    let by_param = Router::new().route("/param", post(order)).route_layer(params);
    let bare = Router::new()
        .route("/charges", post(charge))
        .route("/token", get(token))
        .route("/executions", get(executions))
        .route("/numbers", get(numbers));
    bare.merge(keyed).merge(optional).merge(by_token).merge(by_param)
}
// [/shown]

async fn change(
    State(shop): State<Shop>,
    Path(_): Path<String>,
    Json(order): Json<Order>,
) -> Result<Response, OrderFailed> {
    let id = shop.place(&order).await?;
    Ok(order.placed(StatusCode::OK, &id))
}

/// Bodies are bytes, in and out.
async fn blob(State(shop): State<Shop>, bytes: Bytes) -> impl IntoResponse {
    shop.ran("blob");
    ([(CONTENT_TYPE, "application/octet-stream")], bytes)
}

/// A form fetches one with the page, and its submit spends it.
async fn token(State(shop): State<Shop>, User(caller): User) -> Result<impl IntoResponse, Problem> {
    let token = shop.tokens().issue(caller).await?;
    Ok(([(CACHE_CONTROL, "no-store")], Json(json!({ "token": token.as_str() }))))
}

#[derive(Deserialize)]
struct Of {
    sku: String,
}

/// Returns how often the handlers ran for an article.
async fn executions(State(shop): State<Shop>, Query(of): Query<Of>) -> impl IntoResponse {
    ([(CACHE_CONTROL, "no-store")], Json(json!({ "count": shop.executions(&of.sku) })))
}

/// Returns the outcomes of the requests with a key of the caller.
async fn numbers(State(shop): State<Shop>, User(caller): User, key: IdempotencyKey) -> impl IntoResponse {
    ([(CACHE_CONTROL, "no-store")], Json(shop.numbers().of(shop.as_ref(), &caller, &key)))
}

async fn run(args: &Args) -> anyhow::Result<()> {
    let numbers = KeyCounters::default();
    let store = idempotent::connect(&args.store()?).await.map_err(|error| match error {
        ConnectError::FeatureOff { scheme, .. } => {
            anyhow!("--store: this build has no client for {scheme}://; run it with `--features redis`")
        }
        error => error.into(),
    })?;
    let executor =
        Executor::builder(store).policy(Scene::Rest, args.policy()).observer((Tracing, numbers.clone())).build()?;
    let shop = Shop::new(executor.clone(), Tokens::new(&executor).scope("submit"), numbers);
    let app = router(&shop, args).with_state(shop).merge(page::router());
    let listener = TcpListener::bind(&args.listen).await;
    let listener = listener.with_context(|| format!("cannot listen on {}", args.listen))?;
    serve::until_stopped(listener, app, &executor).await
}

#[tokio::main]
async fn main() -> ExitCode {
    let args = Args::parse();
    tracing_subscriber::fmt().with_max_level(LevelFilter::WARN).with_writer(std::io::stderr).init();
    match run(&args).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            serve::say(&format!("error: {error:#}"));
            ExitCode::from(2)
        }
    }
}
