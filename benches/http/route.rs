//! The route: an order is placed, and the response is 201 with its location.
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::{CONTENT_TYPE, HeaderMap, LOCATION};
use axum::response::{IntoResponse, Response};
use redis::aio::MultiplexedConnection;
use redis::{Value, cmd};
use serde::{Deserialize, Serialize};

/// A counter of the handler's runs.
#[derive(Clone, Debug, Default)]
pub struct Runs(Arc<AtomicU64>);

#[derive(Deserialize)]
pub struct Order {
    sku: String,
    qty: u32,
}

#[derive(Serialize)]
struct Placed {
    order_id: u64,
    sku: String,
    qty: u32,
}

impl Runs {
    pub fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    fn place(&self, Order { sku, qty }: Order) -> Placed {
        Placed { order_id: self.0.fetch_add(1, Ordering::Relaxed), sku, qty }
    }
}

pub async fn place(State(runs): State<Runs>, Json(order): Json<Order>) -> impl IntoResponse {
    let placed = runs.place(order);
    (StatusCode::CREATED, [(LOCATION, format!("/orders/{}", placed.order_id))], Json(placed))
}

/// The lease and the retention of the layer, in ms.
const LEASE: u64 = 30_000;
const RETENTION: u64 = 86_400_000;

/// The same handler, which detects duplicates with two commands: no fence, no guard, no fingerprint.
pub async fn place_with_two_commands(
    State((runs, mut redis)): State<(Runs, MultiplexedConnection)>,
    headers: HeaderMap,
    Json(order): Json<Order>,
) -> Response {
    let header = |name| headers.get(name).unwrap().to_str().unwrap();
    let key = format!("orders:{}:{}", header("x-user"), header("idempotency-key"));
    let claim = cmd("SET").arg(&key).arg("consuming").arg("NX").arg("PX").arg(LEASE).to_owned();
    if claim.query_async::<Value>(&mut redis).await.unwrap() == Value::Nil {
        return StatusCode::CONFLICT.into_response();
    }
    let placed = runs.place(order);
    let location = format!("/orders/{}", placed.order_id);
    let body = serde_json::to_vec(&placed).unwrap();
    let complete = cmd("SET").arg(&key).arg(&body).arg("PX").arg(RETENTION).to_owned();
    assert_eq!(complete.query_async::<Value>(&mut redis).await.unwrap(), Value::Okay);
    let headers = [(CONTENT_TYPE, "application/json".to_owned()), (LOCATION, location)];
    (StatusCode::CREATED, headers, body).into_response()
}
