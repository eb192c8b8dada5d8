//! `WholeRequest`: any difference makes another request.
use super::*;
use axum::extract::DefaultBodyLimit;
use idempotent_tower::WholeRequest;

#[idempotent(
    scene = rest,
    scope = "whole",
    key = key,
    tenant = (),
    fingerprint = request,
    with = app,
    reply = Http,
    detach,
    crate = ::idempotent_core,
)]
async fn whole(
    State(app): State<App>,
    key: IdempotencyKey,
    WholeRequest(Json(order), request): WholeRequest<Json<Order>>,
) -> impl IntoResponse {
    format!("{}: {} {}", app.ran(), order.qty, order.sku)
}

const BODY: &str = r#"{"sku":"teapot","qty":1}"#;

#[tokio::test]
async fn the_same_key_with_another_query_path_field_or_byte_is_rejected() {
    let app = App::new();
    let inner = Router::new().route("/orders/{shop}", post(whole)).with_state(app.clone());
    let service = Router::new().nest("/a", inner.clone()).nest("/b", inner);
    let by = async |uri: &str, body: &'static str| send(&service, request(uri, "k", body)).await;
    let first = by("/a/orders/tea?express=1", BODY).await;
    assert_eq!((first.status, &*first.body), (200, &b"1: 1 teapot"[..]));
    by("/a/orders/tea?express=1", BODY).await.assert_replays(&first);
    for (uri, body) in [
        ("/a/orders/tea?express=0", BODY),
        ("/a/orders/tea", BODY),
        ("/a/orders/cup?express=1", BODY),
        ("/b/orders/tea?express=1", BODY),
        ("/a/orders/tea?express=1", r#"{"sku":"teapot","qty":1,"gift":true}"#),
        ("/a/orders/tea?express=1", r#"{"sku":"teapot","qty":2}"#),
    ] {
        by(uri, body).await.assert_problem(422, "key-reused");
    }
    app.assert_runs(1);
}

#[idempotent(scene = rest, scope = "form", key = key, tenant = (), fingerprint = request, with = app, reply = Http, crate = ::idempotent_core)]
async fn form(
    State(app): State<App>,
    key: IdempotencyKey,
    WholeRequest(body, request): WholeRequest<Bytes>,
) -> impl IntoResponse {
    app.ran();
    body
}

#[tokio::test]
async fn a_form_with_another_multipart_boundary_is_the_same_request() {
    let app = App::new();
    let service = at(&app, "/orders", form);
    let by = async |boundary: &str, value: &str| {
        let body =
            format!("--{boundary}\r\nContent-Disposition: form-data; name=a\r\n\r\n{value}\r\n--{boundary}--\r\n");
        let mut request = request("/orders", "k", body);
        let kind = format!("multipart/form-data; boundary={boundary}").parse().unwrap();
        request.headers_mut().insert("content-type", kind);
        send(&service, request).await
    };
    let first = by("one", "tea").await;
    by("two", "tea").await.assert_replays(&first);
    by("two", "cup").await.assert_problem(422, "key-reused");
    app.assert_runs(1);
}

#[tokio::test]
async fn a_body_is_rejected_as_without_the_extractor_and_limits_apply() {
    let app = App::new();
    let routes = at(&app, "/orders", whole);
    let large = format!(r#"{{"sku":"{}","qty":1}}"#, "x".repeat(3 << 20));
    for (most, body, status) in [
        (None, "{".to_owned(), 400),
        (None, r#"{"sku":1}"#.to_owned(), 422),
        (None, large.clone(), 413),
        (Some(10), BODY.to_owned(), 413),
        (Some(4 << 20), large, 200),
    ] {
        let service = match most {
            Some(most) => routes.clone().layer(DefaultBodyLimit::max(most)),
            None => routes.clone(),
        };
        let length = body.len();
        assert_eq!(send(&service, request("/orders", "k", body)).await.status, status, "{length} bytes, {most:?}");
    }
    app.assert_runs(1);
}
