//! The prelude together with glob imports of axum and tokio.
#![allow(unused_imports)]
use axum::extract::*;
use axum::response::*;
use axum::routing::*;
use axum::*;
use idempotent::prelude::*;
use tokio::sync::*;
use tokio::time::*;

#[derive(Clone, serde::Serialize, serde::Deserialize)]
struct Order {
    shop: String,
    number: u64,
}

// The body moves what the key is made of.
#[idempotent(
    scene = rest,
    key = (order.shop, order.number, key),
    tenant = (order.shop,),
    fingerprint = request,
    with = executor,
    reply = Http,
    detach
)]
async fn create(
    State(executor): State<Executor>,
    key: IdempotencyKey,
    WholeRequest(Json(order), request): WholeRequest<Json<Order>>,
) -> impl IntoResponse {
    drop(key);
    let Order { shop, number } = order;
    Json((shop, number))
}

#[idempotent(key = (order.shop, order.number), fingerprint = (order.shop, order.number), with = executor)]
async fn consume(order: Order, executor: Executor) -> Result<String, Rejection> {
    Ok(order.shop)
}

pub(crate) fn main() {
    let executor = Executor::new(MemoryStore::new());
    let _: Router = Router::new().route("/", post(create)).with_state(executor);
    let _ = consume;
    let _: Option<(Policy, Outcome)> = None;
}
