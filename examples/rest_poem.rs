//! Serves a payment endpoint of poem inside the layer: a payment is charged once, also for double clicks and retries.
//!
//! ```text
//! cargo run -p idempotent-examples --features poem --example rest_poem -- 127.0.0.1:8080
//! url=127.0.0.1:8080/orders/17/payments
//! curl -i $url -H 'X-User: ada' -H 'Idempotency-Key: a1' --json '{"cents":500}'    # 201
//! curl -i $url -H 'X-User: ada' -H 'Idempotency-Key: a1' --json '{"cents":500}'    # the same response again
//! curl -i $url -H 'X-User: ada' -H 'Idempotency-Key: a1' --json '{"cents":900}'    # 422: another request
//! curl -i $url -H 'X-User: ada' --json '{"cents":500}'                             # 400: no key
//! ```
#![allow(clippy::print_stdout, reason = "an example prints its progress")]
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use http_body_util::combinators::BoxBody;
use idempotent::http::{Caller, Principal, RequestBody};
use idempotent::{Executor, IdempotencyLayer, MemoryStore};
use poem::endpoint::TowerCompatExt;
use poem::http::StatusCode;
use poem::http::uri::Scheme;
use poem::listener::{Acceptor, Listener, TcpListener};
use poem::web::{Data, Json, LocalAddr, Path, RemoteAddr};
use poem::{Body, Endpoint, EndpointExt, Request, RequestParts, Route, Server, handler, post};
use serde::{Deserialize, Serialize};
use tower::{Layer, service_fn};

type PoemBody = BoxBody<bytes::Bytes, std::io::Error>;

#[derive(Deserialize)]
struct Payment {
    cents: u64,
}

#[derive(Serialize)]
struct Receipt {
    payment: u64,
    cents: u64,
}

#[handler]
async fn pay(
    payments: Data<&Arc<AtomicU64>>,
    Path(order): Path<u64>,
    Json(Payment { cents }): Json<Payment>,
) -> poem::Result<(StatusCode, Json<Receipt>)> {
    if cents == 0 {
        // A failed response frees the key.
        return Err(poem::Error::from_string("cents: must not be 0", StatusCode::BAD_REQUEST));
    }
    let payment = 1 + payments.fetch_add(1, Ordering::Relaxed);
    println!("payment {payment}: {cents} cents for order {order}");
    Ok((StatusCode::CREATED, Json(Receipt { payment, cents })))
}

/// Puts routes inside the layer.
///
/// `compat` passes on the parts of a request that the crate `http` knows, with the extensions of middleware outside.
/// The address of the peer is lost, and path parameters would be: the router is inside, and finds them.
fn once(layer: &IdempotencyLayer, routes: Route) -> impl Endpoint + use<> {
    let routes = Arc::new(routes);
    let service = service_fn(move |request: poem::http::Request<RequestBody<PoemBody>>| {
        let routes = routes.clone();
        async move {
            let (parts, body) = request.into_parts();
            let parts = RequestParts::from((parts, LocalAddr::default(), RemoteAddr::default(), Scheme::HTTP));
            let request = Request::from_parts(parts, Body::from(BoxBody::new(body)));
            // An `Err` of a handler becomes its response, which decides whether the key is free.
            let response = routes.get_response(request).await;
            Ok::<_, Infallible>(poem::http::Response::<PoemBody>::from(response))
        }
    });
    layer.layer(service).compat()
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:8080".to_owned());
    // The owner of the key. A service takes the user that its authentication outside of the layer has found.
    let principal = Principal::from_fn(|parts| {
        let user = parts.headers.get("x-user").and_then(|user| user.to_str().ok());
        Ok(user.map_or_else(Caller::anonymous, Caller::named))
    });
    let executor = Executor::new(MemoryStore::new());
    let layer = IdempotencyLayer::new(executor.clone(), principal);
    layer.check()?; // fails at the start instead of at each request

    let payments = Route::new().at("/orders/:order/payments", post(pay));
    let app = once(&layer, payments).data(Arc::new(AtomicU64::new(0)));
    let acceptor = TcpListener::bind(address).into_acceptor().await?;
    for address in acceptor.local_addr().iter().filter_map(|address| address.as_socket_addr()) {
        println!("listening on {address}");
    }
    let stop = async { drop(tokio::signal::ctrl_c().await) };
    let grace = Duration::from_secs(30);
    Server::new_with_acceptor(acceptor).run_with_graceful_shutdown(app, stop, Some(grace)).await?;
    // Runs whose clients have disconnected.
    executor.drain(grace).await;
    Ok(())
}
