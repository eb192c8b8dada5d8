//! Requests to a REST service inside of the idempotency layer.
use std::convert::Infallible;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use idempotent_tower::{IdempotencyLayer, Principal, RequestBody};
use opentelemetry::trace::{SpanKind, Status};
use tower::{Layer, Service, ServiceExt};
use tracing::Instrument;

use crate::world::{Traces, attribute, id, links, traced};

type Body = Full<Bytes>;

#[tokio::test]
async fn a_request_keeps_its_server_span_and_a_replay_links_to_the_first_request() {
    let traces = Traces::start();
    let layer = IdempotencyLayer::new(traced(), Principal::none());
    let handler = |request: Request<RequestBody<Body>>| async move {
        let handled = async move { request.into_body().collect().await.unwrap().to_bytes() };
        let body = handled.instrument(tracing::info_span!(target: "service", "handler")).await;
        Ok::<_, Infallible>(Response::new(Full::from(body)))
    };
    let mut service = layer.layer(tower::service_fn(handler));
    for _ in 0..2 {
        let request = Request::post("/orders").header("idempotency-key", "\"k-1\"");
        let request = request.body(Full::new(Bytes::from_static(b"tea"))).unwrap();
        // As the middleware of the application does.
        let server = tracing::info_span!(target: "service", "server", otel.name = "POST /orders", otel.kind = "server");
        let answer = async { service.ready().await.unwrap().call(request).await.unwrap() }.instrument(server).await;
        assert_eq!(answer.status(), StatusCode::OK);
        let _ = answer.into_body().collect().await;
    }
    let (servers, runs, handler) = (traces.all("POST /orders"), traces.all("idempotent"), traces.one("handler"));
    assert_eq!((servers.len(), runs.len()), (2, 2));
    for (server, run) in servers.iter().zip(&runs) {
        assert_eq!((&server.span_kind, run.parent_span_id), (&SpanKind::Server, id(server)));
        assert_eq!((&server.status, &run.status), (&Status::Unset, &Status::Unset));
    }
    assert_eq!(handler.parent_span_id, id(&runs[0]), "the handler runs inside of its run");
    let outcomes: Vec<_> = runs.iter().map(|run| attribute(run, "idempotent.outcome").unwrap()).collect();
    assert_eq!(outcomes, ["ran", "replayed"]);
    assert_eq!(attribute(&runs[1], "idempotent.scene").unwrap(), "rest");
    assert_eq!(links(&runs[1]), [(id(&runs[0]), "first_run".to_owned())]);
}
