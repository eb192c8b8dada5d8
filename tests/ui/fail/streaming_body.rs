// expect: a streaming body must be buffered first
use axum::body::Body;
use idempotent::{Http, IdempotencyKey, idempotent};

#[idempotent(scene = rest, key = key, fingerprint = body, tenant = (), reply = Http)]
async fn streaming(key: IdempotencyKey, body: Body) -> &'static str {
    "created"
}

fn main() {}
