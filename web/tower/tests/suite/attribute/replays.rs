//! The stored part of a response, its replay, and the rules that decide.
use idempotent_core::{Policy, Scene};

use super::*;

#[idempotent(scene = rest, scope = "headers", key = key, with = app, tenant = (), fingerprint = (), reply = Http, crate = ::idempotent_core)]
async fn headers(State(app): State<App>, key: IdempotencyKey) -> impl IntoResponse {
    app.ran();
    let mut headers = HeaderMap::new();
    for (name, value) in [
        ("x-b", &b"1"[..]),
        ("x-a", b"2"),
        ("x-b", b"3"),
        ("x-bytes", b"\xfe\xff"),
        ("content-type", b"image/png"),
        ("location", b"/orders/1"),
        // None of these is stored.
        ("set-cookie", b"a=1"),
        ("set-cookie", b"b=2"),
        ("date", b"Thu, 01 Jan 1970 00:00:00 GMT"),
        ("connection", b"x-hop"),
        ("x-hop", b"1"),
        ("x-ratelimit-remaining", b"9"),
        ("x-request-id", b"of the first"),
        ("server-timing", b"db;dur=5"),
        ("traceparent", b"00-1"),
    ] {
        headers.append(HeaderName::from_static(name), HeaderValue::from_bytes(value).unwrap());
    }
    (StatusCode::MULTI_STATUS, headers, Bytes::from_static(&[0, 0xff, 0x80, b'\n']))
}

#[tokio::test]
async fn status_ordered_headers_and_bytes_are_replayed_without_cookies_and_hop_headers() {
    let app = App::new();
    let service = at(&app, "/orders", headers);
    let (first, replayed) = (order(&service, "k", 1).await, order(&service, "k", 1).await);
    app.assert_runs(1);
    assert_eq!((first.status, replayed.status), (207, 207));
    assert_eq!(replayed.body, [0, 0xff, 0x80, b'\n'][..]);
    assert_eq!(first.body, replayed.body);
    assert_eq!(first.headers.get_all("set-cookie").iter().count(), 2, "the first caller gets all of it");
    let told: Vec<_> = replayed.headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect();
    let wanted: [(&str, &[u8]); 8] = [
        ("content-type", b"image/png"),
        ("x-b", b"1"),
        ("x-b", b"3"),
        ("x-a", b"2"),
        ("x-bytes", b"\xfe\xff"),
        ("location", b"/orders/1"),
        ("idempotent-replayed", b"true"),
        ("content-length", b"4"),
    ];
    assert_eq!(told, wanted);
}

/// Responds as the body of the request asks.
#[idempotent(scene = rest, scope = "told", key = key, with = app, tenant = (), fingerprint = (), reply = Http, crate = ::idempotent_core)]
async fn told(State(app): State<App>, key: IdempotencyKey, body: String) -> impl IntoResponse {
    app.ran();
    let (status, decision) = body.split_once(' ').unwrap();
    let status = StatusCode::from_u16(status.parse().unwrap()).unwrap();
    match decision {
        "store" => (status, Idempotent::store(), "decided").into_response(),
        "release" => (status, Idempotent::release(), "decided").into_response(),
        _ => (status, "by status").into_response(),
    }
}

#[tokio::test]
async fn success_is_stored_other_statuses_free_the_key_and_the_handler_may_override() {
    for (says, runs) in [
        ("200 -", 1),
        ("204 -", 1),
        ("303 -", 1),
        ("400 -", 2),
        ("404 -", 2),
        ("409 -", 2),
        ("422 -", 2),
        ("500 -", 2),
        ("503 -", 2),
        ("402 store", 1),
        ("500 store", 1),
        ("200 release", 2),
    ] {
        let app = App::new();
        let service = at(&app, "/orders", told);
        let first = send(&service, request("/orders", "k", says)).await;
        let again = send(&service, request("/orders", "k", says)).await;
        app.assert_runs(runs);
        assert_eq!((&again.body, again.is_replayed()), (&first.body, runs == 1), "{says}");
        assert_eq!(again.status, first.status);
    }
}

#[idempotent(scene = rest, scope = "stream", key = key, with = app, tenant = (), fingerprint = (), reply = Http, crate = ::idempotent_core)]
async fn stream(State(app): State<App>, key: IdempotencyKey) -> impl IntoResponse {
    app.ran();
    let pieces = ["one ", "two"].map(Ok::<_, std::convert::Infallible>);
    let body = Body::from_stream(futures_util::stream::iter(pieces));
    (StatusCode::CREATED, [(header::LOCATION, "/reports/1")], body)
}

#[tokio::test]
async fn a_stream_passes_through_and_a_duplicate_learns_of_its_completion() {
    let app = App::new();
    let service = at(&app, "/orders", stream);
    assert_eq!(order(&service, "k", 1).await.body, "one two");
    let duplicate = order(&service, "k", 1).await;
    duplicate.assert_problem(409, "response-not-retained");
    assert_eq!(duplicate.header("location"), "/reports/1");
    app.assert_runs(1);
}

/// Responds with as many bytes as the body of the request asks for.
#[idempotent(scene = rest, scope = "sized", key = key, with = app, tenant = (), fingerprint = (), reply = Http, crate = ::idempotent_core)]
async fn sized(State(app): State<App>, key: IdempotencyKey, body: String) -> Vec<u8> {
    app.ran();
    vec![7; body.parse().unwrap()]
}

#[tokio::test]
async fn a_body_is_stored_up_to_a_mebibyte_or_the_limit_of_the_executor() {
    let limited = || {
        let policy = Policy::new().max_result(100);
        App::over(Executor::builder(MemoryStore::new()).policy(Scene::Rest, policy).build().unwrap())
    };
    for (app, size, stored) in
        [(App::new(), 1 << 20, true), (App::new(), (1 << 20) + 1, false), (limited(), 200, false)]
    {
        let service = at(&app, "/orders", sized);
        let ask = async || send(&service, request("/orders", "k", size.to_string())).await;
        let (first, second) = (ask().await, ask().await);
        assert_eq!((first.status, first.body.len()), (200, size));
        match stored {
            true => second.assert_replays(&first),
            false => second.assert_problem(409, "response-not-retained"),
        }
        app.assert_runs(1);
    }
}

/// Custom rules.
struct Mine;

impl HttpRules for Mine {
    fn rules() -> Arc<ResponseRules> {
        let rules = ResponseRules::default()
            .store(idempotent_tower::StorePolicy::Final)
            .replay_header(ReplayHeader::Named(HeaderName::from_static("x-again")))
            .keep(header::SET_COOKIE)
            .drop(HeaderName::from_static("x-trace"))
            .max_response(8)
            .sanitize(|kept| {
                kept.headers_mut().insert("x-kept", HeaderValue::from_static("yes"));
            });
        Arc::new(rules)
    }

    fn problem(problem: Problem) -> Response {
        (problem.kind().status(), [("x-code", problem.kind().code())], "in our own words").into_response()
    }
}

#[idempotent(
    scene = rest,
    scope = "mine",
    key = key,
    fingerprint = body,
    with = app,
    tenant = (), reply = Http<Mine>,
    crate = ::idempotent_core,
)]
async fn mine(State(app): State<App>, key: IdempotencyKey, body: String) -> impl IntoResponse {
    app.ran();
    (StatusCode::GONE, [("x-trace", "1"), ("set-cookie", "a=1")], body)
}

#[tokio::test]
async fn custom_rules_decide_what_is_stored_and_how_problems_look() {
    let app = App::new();
    let service = at(&app, "/orders", mine);
    let send = async |key: &str, body: &'static str| send(&service, request("/orders", key, body)).await;
    assert_eq!(send("k", "gone").await.header("x-trace"), "1");
    let replayed = send("k", "gone").await;
    app.assert_runs(1);
    assert_eq!((replayed.status, &*replayed.body), (410, &b"gone"[..]));
    let told = ["x-again", "x-kept", "set-cookie", "x-trace", "idempotent-replayed"].map(|name| replayed.header(name));
    assert_eq!(told, ["true", "yes", "a=1", "", ""]);

    let refused = send("k", "other").await;
    assert_eq!(
        (refused.status, refused.header("x-code"), &*refused.body),
        (422, "key-reused", &b"in our own words"[..])
    );

    assert_eq!(send("l", "nine bytes").await.status, 410);
    assert_eq!(send("l", "nine bytes").await.header("x-code"), "response-not-retained");
    app.assert_runs(1);
}
