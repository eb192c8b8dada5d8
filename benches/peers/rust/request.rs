//! The requests of the HTTP layers, ours and axum-idempotent.
use axum::body::Body;
use axum::http::Request;

/// The number of users. axum-idempotent keeps the responses of a user in one hash.
pub const USERS: u64 = 10_000;

/// Creates a request with the key of this number. The header `x-user` names the user for our layer, the cookie for
/// axum-idempotent.
pub fn request(number: u64, user: &str) -> Request<Body> {
    let request = Request::post("/orders")
        .header("host", "bench")
        .header("content-type", "application/json")
        .header("x-user", user)
        .header("cookie", format!("session={user}"))
        .header("idempotency-key", format!("order-{number:014}"))
        .body(Body::from(r#"{"sku":"desk","qty":2}"#));
    request.expect("all headers are valid")
}
