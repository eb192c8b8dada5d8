//! `failed_if` and `permanent` together with `Http`: one sees the response that counts, the other the one that does
//! not.
use super::*;

#[idempotent(
    scene = rest,
    scope = "declined",
    key = key,
    with = app,
    tenant = (), fingerprint = (), reply = Http,
    failed_if = |kept| {
        kept.headers().contains_key("x-declined") || kept.body().is_some_and(|body| body.starts_with(b"declined"))
    },
    crate = ::idempotent_core,
)]
async fn declined(State(app): State<App>, key: IdempotencyKey, body: String) -> impl IntoResponse {
    app.ran();
    match body.as_str() {
        "header" => ([("x-declined", "1")], body).into_response(),
        _ => (StatusCode::ACCEPTED, body).into_response(),
    }
}

#[tokio::test]
async fn failed_if_sees_status_headers_and_body_of_a_response_that_would_be_stored() {
    let app = App::new();
    let service = at(&app, "/orders", declined);
    for (body, status) in [("declined: no money", 202), ("header", 200)] {
        let answer = send(&service, request("/orders", "k", body)).await;
        assert_eq!((answer.status, &*answer.body), (status, body.as_bytes()), "handed on as it is");
    }
    app.assert_runs(2);
    let first = send(&service, request("/orders", "k", "fine")).await;
    send(&service, request("/orders", "k", "header")).await.assert_replays(&first);
    app.assert_runs(1);
}

#[idempotent(
    scene = rest,
    scope = "gone",
    key = key,
    with = app,
    tenant = (), fingerprint = (), reply = Http,
    permanent = |response| response.status() == StatusCode::GONE,
    crate = ::idempotent_core,
)]
async fn gone(State(app): State<App>, key: IdempotencyKey, body: String) -> impl IntoResponse {
    app.ran();
    (StatusCode::from_u16(body.parse().unwrap()).unwrap(), "no more")
}

#[tokio::test]
async fn permanent_sees_a_response_that_is_not_stored_and_a_duplicate_learns_that_no_retry_helps() {
    let app = App::new();
    let service = at(&app, "/orders", gone);
    let says = async |status: &'static str| send(&service, request("/orders", "k", status)).await;
    assert_eq!((says("404").await.status, says("410").await.status), (404, 410));
    app.assert_runs(2);
    let duplicate = says("200").await;
    duplicate.assert_problem(409, "failed-before");
    assert_eq!(duplicate.json()["retryable"], false);
    app.assert_runs(0);
}
