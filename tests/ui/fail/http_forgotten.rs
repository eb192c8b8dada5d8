// expect: `reply = Http`
use axum::Json;
use axum::response::IntoResponse;
use idempotent::http::Problem;
use idempotent::{IdempotencyKey, idempotent};

#[idempotent(scene = rest, key = key)]
async fn opaque(key: IdempotencyKey) -> impl IntoResponse {
    "created"
}

#[idempotent(scene = rest, key = key)]
async fn json(key: IdempotencyKey) -> Json<u32> {
    Json(17)
}

#[idempotent(scene = rest, key = key)]
async fn typed(key: IdempotencyKey) -> Result<Json<u32>, Problem> {
    Ok(Json(17))
}

fn main() {
    let _: axum::Router<()> = axum::Router::new().route("/", axum::routing::post(opaque));
}
