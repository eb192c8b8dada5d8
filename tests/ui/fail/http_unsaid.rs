// expect: tenant = () if all callers share their keys
use axum::Json;
use axum::response::IntoResponse;
use idempotent::{Http, IdempotencyKey, idempotent};

#[idempotent(scene = rest, key = key, fingerprint = order, reply = Http)]
async fn no_tenant(key: IdempotencyKey, Json(order): Json<u32>) -> impl IntoResponse {
    "created"
}

#[idempotent(scene = rest, key = key, tenant = (), reply = Http)]
async fn no_fingerprint(key: IdempotencyKey, Json(order): Json<u32>) -> impl IntoResponse {
    "created"
}

#[idempotent(by = param, reply = Http)]
async fn no_tenant_by_param(order: u32) -> impl IntoResponse {
    "created"
}

fn main() {}
