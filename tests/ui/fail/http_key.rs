// expect: no argument named `key`
use axum::Json;
use axum::body::Bytes;
use axum::http::HeaderMap;
use idempotent::{Http, IdempotencyKey, idempotent};

#[idempotent(scene = rest, key = key, tenant = (), fingerprint = (), reply = Http)]
async fn without(Json(order): Json<u32>) -> Json<u32> {
    Json(order)
}

#[idempotent(scene = rest, key = headers, tenant = (), fingerprint = (), reply = Http)]
async fn all(headers: HeaderMap) -> &'static str {
    "created"
}

#[idempotent(scene = rest, key = key, fingerprint = body, tenant = (), reply = Http)]
async fn raw(key: IdempotencyKey, body: Bytes) -> Bytes {
    body
}

fn main() {
    let _: axum::Router<()> = axum::Router::new().route("/", axum::routing::post(without));
}
