//! The decision table, over axum.
use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, post};
use futures_util::stream;
use http::header::{HeaderName, HeaderValue};
use idempotent_http_decisions::{Shop, table};
use idempotent_tower::{IdempotencyLayer, RequestAttempt};
use tokio::net::TcpListener;

fn router(shop: Shop, layer: IdempotencyLayer) -> Router {
    let handler = async move |attempt: Option<RequestAttempt>, headers: HeaderMap, body: Bytes| -> Response {
        let told = |name: &str| Some(headers.get(name)?.to_str().ok()?.to_owned());
        let reply = shop.run(told, &body, attempt).await;
        let body = if reply.streamed {
            Body::from_stream(stream::iter([Ok::<_, std::convert::Infallible>(reply.body)]))
        } else {
            Body::from(reply.body)
        };
        let mut response = (StatusCode::from_u16(reply.status).unwrap(), body).into_response();
        for (name, value) in reply.headers {
            response.headers_mut().append(HeaderName::from_static(name), HeaderValue::try_from(value).unwrap());
        }
        reply.decision.map(|decision| response.extensions_mut().insert(decision));
        response
    };
    Router::new()
        .route("/orders", any(handler.clone()))
        .route("/orders/{id}", any(handler.clone()))
        .route("/baskets", post(handler))
        .layer(layer)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_layer_makes_the_decisions_of_the_table() {
    for row in table().await {
        let shop = Shop::default();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let router = router(shop.clone(), row.layer.clone());
        let server = tokio::spawn(async move { axum::serve(listener, router).await });
        row.check(address, &shop).await;
        server.abort();
    }
}
