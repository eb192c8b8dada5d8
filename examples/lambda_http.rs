//! A function of AWS Lambda behind API Gateway that places each order once, also for double clicks and retries.
//!
//! ```text
//! cargo lambda build --release --features lambda --example lambda_http
//! curl -i "$URL/orders" -H "Authorization: $TOKEN" -H 'Idempotency-Key: a1' --json '{"sku":"kettle"}'    # 201
//! curl -i "$URL/orders" -H "Authorization: $TOKEN" -H 'Idempotency-Key: a1' --json '{"sku":"kettle"}'    # the same response again
//! ```
//!
//! The application is what a server with axum has. The owner of a key is the subject of the token that the JWT authorizer of
//! the HTTP API has verified. The records are in the table `idempotent` of DynamoDB.
#![allow(clippy::print_stdout, reason = "Lambda stores what a function prints")]
use std::time::Duration;

use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::routing::post;
use axum::{Json, Router};
use idempotent::dynamodb::DynamoBackend;
use idempotent::dynamodb::aws_sdk_dynamodb::Client;
use idempotent::http::{Caller, Principal};
use idempotent::store::Cas;
use idempotent::{Executor, IdempotencyLayer};
use lambda_http::request::RequestContext;
use lambda_http::{Error, run};
use serde::Deserialize;

#[derive(Deserialize)]
struct Order {
    sku: String,
}

async fn place(Json(order): Json<Order>) -> (StatusCode, String) {
    println!("an order of one {}", order.sku);
    (StatusCode::CREATED, format!("one {}\n", order.sku))
}

fn subject(parts: &Parts) -> Option<&String> {
    let RequestContext::ApiGatewayV2(context) = parts.extensions.get()? else { return None };
    context.authorizer.as_ref()?.jwt.as_ref()?.claims.get("sub")
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let principal = Principal::from_fn(|parts| Ok(subject(parts).map_or_else(Caller::anonymous, Caller::named)));
    let client = Client::new(&aws_config::load_from_env().await);
    let backend = DynamoBackend::builder(&client, "idempotent").create(true).open().await?;
    let layer = IdempotencyLayer::new(Executor::new(Cas(backend)), principal);
    // The key of a request whose function ended during its run is free after the lease.
    let layer = layer.lease(Duration::from_secs(10));
    run(Router::new().route("/orders", post(place)).route_layer(layer)).await
}
