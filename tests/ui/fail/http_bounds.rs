// expect: `Page` doesn't implement `std::fmt::Display`
use axum::response::{IntoResponse, Response};
use idempotent::http::Problem;
use idempotent::{Http, IdempotencyKey, idempotent};

struct Page;

impl IntoResponse for Page {
    fn into_response(self) -> Response {
        "page".into_response()
    }
}

#[idempotent(scene = rest, key = key, tenant = (), fingerprint = (), reply = Http)]
async fn create(key: IdempotencyKey) -> impl IntoResponse + std::fmt::Display {
    Page
}

#[idempotent(scene = rest, key = key, tenant = (), fingerprint = (), reply = Http)]
async fn fallible(key: IdempotencyKey) -> Result<impl IntoResponse + std::fmt::Display, Problem> {
    Ok(Page)
}

#[idempotent(scene = rest, key = key, tenant = (), fingerprint = (), reply = Http)]
async fn number(key: IdempotencyKey) -> impl IntoResponse {
    17
}

fn main() {}
