//! Serves an HTTP API that places each order once, also for double clicks and retries.
//!
//! ```text
//! cargo run -p idempotent-examples --example rest_axum -- 127.0.0.1:8080
//! curl -i 127.0.0.1:8080/orders -H 'Idempotency-Key: a1' --json '{"sku":"kettle"}'    # 201
//! curl -i 127.0.0.1:8080/orders -H 'Idempotency-Key: a1' --json '{"sku":"kettle"}'    # the same response again
//! curl -i 127.0.0.1:8080/orders -H 'Idempotency-Key: a1' --json '{"sku":"teapot"}'    # 422: another request
//! curl -i 127.0.0.1:8080/orders --json '{"sku":"kettle"}'                             # 400: no key
//! ```
//!
//! The application in `apps/shop` adds a page that submits twice, tokens, several callers and shared stores.
#![allow(clippy::print_stdout, reason = "an example prints its progress")]
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::IntoResponse;
use axum::routing::post;
use axum::{Json, Router};
use idempotent::http::WholeRequest;
use idempotent::{Executor, Http, IdempotencyKey, MemoryStore, idempotent};
use serde::{Deserialize, Serialize};
use tokio::net::TcpListener;

#[derive(Clone)]
struct Shop {
    executor: Executor,
    orders: Arc<AtomicU64>,
}

#[derive(Deserialize)]
struct Order {
    sku: String,
}

#[derive(Serialize)]
struct Receipt {
    order: u64,
    sku: String,
}

/// Places an order. A service with several callers names the caller, e.g. `tenant = user.id`: equal keys of two callers differ.
#[idempotent(
    scene = rest,
    scope = "orders",
    key = key,
    tenant = (),
    fingerprint = request,
    with = shop.executor,
    reply = Http,
    detach,
)]
async fn place(
    State(shop): State<Shop>,
    key: IdempotencyKey,
    WholeRequest(Json(order), request): WholeRequest<Json<Order>>,
) -> impl IntoResponse {
    if order.sku.is_empty() {
        // A failed response releases the key.
        return Err((StatusCode::BAD_REQUEST, "sku: must not be empty"));
    }
    let receipt = Receipt { order: 1 + shop.orders.fetch_add(1, Ordering::Relaxed), sku: order.sku };
    println!("order {}: one {}", receipt.order, receipt.sku);
    Ok((StatusCode::CREATED, Json(receipt)))
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:8080".to_owned());
    let shop = Shop { executor: Executor::new(MemoryStore::new()), orders: Arc::default() };
    let app = Router::new().route("/orders", post(place)).with_state(shop);
    let listener = TcpListener::bind(&address).await?;
    println!("listening on {}", listener.local_addr()?);
    let stop = async { drop(tokio::signal::ctrl_c().await) };
    Ok(axum::serve(listener, app).with_graceful_shutdown(stop).await?)
}
