//! A small order service whose requests may come twice: double clicks, retries, proxies that try again.
//!
//! ```text
//! cargo run --release -p idempotent-rest-axum --example rest_axum -- --listen 127.0.0.1:8080       # and open http://127.0.0.1:8080
//! cargo run --release -p idempotent-rest-axum --features redis --example rest_axum -- --store redis://127.0.0.1:6379      # a fleet's store
//! curl -i -H 'Idempotency-Key: k1' -H 'Content-Type: application/json' \
//!      -d '{"sku":"tea","qty":2}' http://127.0.0.1:8080/orders             # again: the same answer, replayed
//! curl 'http://127.0.0.1:8080/executions?sku=tea'                         # once, since this process began
//! ```
//!
//! | route | told apart by |
//! |---|---|
//! | `POST /orders`, `PATCH /orders/{id}`, `POST /blob` | `Idempotency-Key`, required |
//! | `POST /optional` | the same, where there is one |
//! | `POST /charges` | the same, in an annotated handler |
//! | `POST /submit` | a token of `GET /token`, in `X-Idempotent-Token` |
//! | `POST /param` | what it says |
//!
//! What to look at is in this file: the handlers, of which one is annotated and the others know nothing of keys, and
//! the router, which puts layers around those. The folder `rest_axum/` holds what a real service gets from elsewhere:
//! the command line (`args.rs`), who calls (`caller.rs`), what is sold (`order.rs`, `shop.rs`), numbers to look at
//! (`numbers.rs`, `page.rs`) and how a process ends (`serve.rs`).
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
use idempotent::{
    ConnectError, Executor, Http, IdempotencyKey, IdempotencyLayer, Problem, Scene, Tokens, Tracing, idempotent,
};
use serde::Deserialize;
use serde_json::json;
use tokio::net::TcpListener;
use tracing_subscriber::filter::LevelFilter;

use self::args::Args;
use self::caller::User;
use self::numbers::Numbers;
use self::order::{Failed, Order};
use self::shop::Shop;

// What is between the two marks is what the page shows as its code.
// [shown]
/// Behind a layer: knows nothing of keys, and runs once for each.
async fn order(State(shop): State<Shop>, Json(order): Json<Order>) -> Result<Response, Failed> {
    let id = shop.place(&order).await?;
    Ok(order.placed(StatusCode::CREATED, &id))
}

/// Annotated: the same promise without a layer. The key is one extractor, the caller another, and a key that comes
/// with another order is refused.
#[idempotent(
    scene = rest, scope = "charge", with = shop, tenant = caller, key = key, fingerprint = order, reply = Http, detach
)]
async fn charge(
    State(shop): State<Shop>,
    User(caller): User,
    key: IdempotencyKey,
    Json(order): Json<Order>,
) -> Result<Response, Failed> {
    let id = shop.place(&order).await?;
    Ok(order.placed(StatusCode::CREATED, &id))
}

/// Layers go around routes. What stands further out, such as tracing, authentication, timeouts and compression, goes
/// around these.
fn router(shop: &Shop, args: &Args) -> Router<Shop> {
    let executor: &Executor = shop.as_ref();
    let keys = IdempotencyLayer::new(executor.clone(), caller::principal()).docs("/");
    let tokens = IdempotencyLayer::tokens(shop.tokens().clone(), caller::principal());
    let params = IdempotencyLayer::params(executor.clone(), caller::principal())
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

async fn change(State(shop): State<Shop>, Path(_): Path<String>, Json(order): Json<Order>) -> Result<Response, Failed> {
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

/// How often handlers really ran.
async fn executions(State(shop): State<Shop>, Query(of): Query<Of>) -> impl IntoResponse {
    ([(CACHE_CONTROL, "no-store")], Json(json!({ "count": shop.executions(&of.sku) })))
}

/// What became of the requests with the caller's key.
async fn numbers(State(shop): State<Shop>, User(caller): User, key: IdempotencyKey) -> impl IntoResponse {
    ([(CACHE_CONTROL, "no-store")], Json(shop.numbers().of(shop.as_ref(), &caller, &key)))
}

async fn run(args: &Args) -> anyhow::Result<()> {
    let numbers = Numbers::default();
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
