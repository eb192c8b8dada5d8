//! Extractors as arguments, destructured or not, and as parts of the key.
use super::*;

#[derive(Clone)]
struct User(&'static str);

#[derive(Deserialize)]
struct Options {
    express: bool,
}

#[idempotent(
    scene = rest,
    scope = "ship",
    key = (&shop, number, &key),
    tenant = user.0,
    fingerprint = (options.express, Fingerprint::of_bytes(&body).to_bytes()),
    with = app.executor,
    reply = Http,
    detach,
    crate = ::idempotent_core,
)]
async fn ship(
    State(app): State<App>,
    Extension(user): Extension<User>,
    Path((shop, number)): Path<(String, u32)>,
    Query(options): Query<Options>,
    key: IdempotencyKey,
    body: Bytes,
) -> impl IntoResponse {
    let run = app.ran();
    (StatusCode::CREATED, format!("{run}: {shop}/{number} for {} ({}, {} bytes)", user.0, options.express, body.len()))
}

fn shipping(app: &App, user: &'static str) -> Router {
    at(app, "/shops/{shop}/orders/{number}", ship).layer(Extension(User(user)))
}

#[tokio::test]
async fn destructured_extractors_make_key_tenant_and_fingerprint() {
    let app = App::new();
    let (ada, bob) = (shipping(&app, "ada"), shipping(&app, "bob"));
    let by = async |service, uri: &str, body: &'static [u8]| send(service, request(uri, "k", body)).await;

    let first = by(&ada, "/shops/tea/orders/7?express=true", b"\0\xff").await;
    assert_eq!((first.status, &*first.body), (201, &b"1: tea/7 for ada (true, 2 bytes)"[..]));
    by(&ada, "/shops/tea/orders/7?express=true", b"\0\xff").await.assert_replays(&first);
    app.assert_runs(1);

    // Another key part or another tenant makes another key.
    for (service, uri) in [(&ada, "/shops/tea/orders/8?express=true"), (&bob, "/shops/tea/orders/7?express=true")] {
        assert!(!by(service, uri, b"\0\xff").await.is_replayed());
    }
    app.assert_runs(2);

    // A different payload is rejected.
    by(&ada, "/shops/tea/orders/7?express=true", b"\0\xfe").await.assert_problem(422, "key-reused");
    by(&ada, "/shops/tea/orders/7?express=false", b"\0\xff").await.assert_problem(422, "key-reused");
    app.assert_runs(0);
}

#[idempotent(
    scene = rest,
    scope = "whose",
    key = key,
    tenant = caller,
    fingerprint = (),
    with = app.executor,
    reply = Http,
    crate = ::idempotent_core,
)]
async fn whose(State(app): State<App>, caller: Caller, key: IdempotencyKey) -> String {
    format!("run {}", app.ran())
}

#[tokio::test]
async fn one_principal_names_the_caller_of_annotated_handlers_too() {
    let app = App::new();
    let principal = Principal::from_fn(|parts| match parts.headers.get("x-user").map(|user| user.to_str()) {
        Some(Ok("")) => Err(Denied::status(StatusCode::FORBIDDEN)),
        Some(Ok(user)) => Ok(Caller::named(user)),
        _ => Ok(Caller::anonymous()),
    });
    let without = at(&app, "/orders", whose);
    let service = at(&app, "/orders", whose).layer(Extension(principal));
    let by = |header: &'static str, value: &'static str| {
        let mut sent = request("/orders", "k", "");
        sent.headers_mut().insert(header, HeaderValue::from_static(value));
        sent
    };
    let first = send(&service, by("x-user", "ada")).await;
    send(&service, by("x-user", "ada")).await.assert_replays(&first);
    assert!(!send(&service, by("x-user", "bob")).await.is_replayed());
    app.assert_runs(2);

    assert_eq!(send(&service, by("x-user", "")).await.status, 403);
    send(&service, by("authorization", "Bearer ada")).await.assert_problem(500, "misconfigured");
    send(&without, by("x-user", "ada")).await.assert_problem(500, "misconfigured");
    app.assert_runs(0);
}

#[idempotent(scene = rest, scope = "take", key = key, with = app, tenant = (), fingerprint = (), reply = Http, crate = ::idempotent_core)]
async fn take(State(app): State<App>, key: IdempotencyKey) -> String {
    format!("run {}", app.ran())
}

#[tokio::test]
async fn the_extractor_rejects_a_missing_or_malformed_key() {
    let app = App::new();
    let service = at(&app, "/orders", take);
    order(&service, "", 1).await.assert_problem(400, "missing-key");
    for malformed in ["a, b", "a b", "\"a", "\"a\" b", "k;v=1", &"k".repeat(256)] {
        let answer = order(&service, malformed, 1).await;
        answer.assert_problem(400, "invalid-key");
        assert!(!String::from_utf8_lossy(&answer.body).contains("kkk"), "the key is not echoed");
    }
    let mut two = request("/orders", "a", Body::empty());
    two.headers_mut().append("idempotency-key", HeaderValue::from_static("a"));
    send(&service, two).await.assert_problem(400, "invalid-key");
    app.assert_runs(0);

    // Both forms are one key.
    let first = order(&service, "a", 1).await;
    order(&service, "\"a\";v=1", 1).await.assert_replays(&first);
    app.assert_runs(1);
}

#[idempotent(scene = rest, scope = "optional", key = key, with = app, tenant = (), fingerprint = (), reply = Http, crate = ::idempotent_core)]
async fn optional(State(app): State<App>, key: Option<IdempotencyKey>) -> String {
    format!("run {}", app.ran())
}

#[tokio::test]
async fn an_optional_key_that_is_missing_is_rejected_and_never_runs_unprotected() {
    let app = App::new();
    let service = at(&app, "/orders", optional);
    order(&service, "", 1).await.assert_problem(400, "missing-key");
    order(&service, "a b", 1).await.assert_problem(400, "invalid-key");
    app.assert_runs(0);
    once(&app, &service).await;
}

/// A key with custom rules.
struct RequestId(IdempotencyKey);

impl<S: Sync> axum::extract::FromRequestParts<S> for RequestId {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut axum::http::request::Parts, _: &S) -> Result<Self, Problem> {
        let rules = idempotent_tower::KeyRules::default().header(HeaderName::from_static("x-request-id")).min_len(4);
        rules.read(&parts.headers)?.map(Self).ok_or_else(|| Problem::new(ProblemKind::MissingKey))
    }
}

#[idempotent(scene = rest, scope = "own", key = id, with = app, tenant = (), fingerprint = (), reply = Http, crate = ::idempotent_core)]
async fn own(State(app): State<App>, RequestId(id): RequestId) -> String {
    format!("run {}", app.ran())
}

#[tokio::test]
async fn a_custom_extractor_reads_another_header_by_other_rules() {
    let app = App::new();
    let service = at(&app, "/orders", own);
    let with = async |id: &'static str| {
        let mut request = request("/orders", "not looked at", Body::empty());
        request.headers_mut().insert("x-request-id", HeaderValue::from_static(id));
        send(&service, request).await
    };
    order(&service, "k", 1).await.assert_problem(400, "missing-key");
    with("abc").await.assert_problem(400, "invalid-key");
    let first = with("abcd").await;
    with("abcd").await.assert_replays(&first);
    app.assert_runs(1);
}

#[idempotent(scene = rest, scope = "field", key = order.sku, with = app, tenant = (), fingerprint = (), reply = Http, crate = ::idempotent_core)]
async fn by_field(State(app): State<App>, Json(order): Json<Order>) -> String {
    format!("run {} of {}", app.ran(), order.sku)
}

#[tokio::test]
async fn a_field_of_the_body_can_be_the_key_and_an_empty_one_is_rejected() {
    let app = App::new();
    let service = at(&app, "/orders", by_field);
    let first = order(&service, "", 1).await;
    order(&service, "", 2).await.assert_replays(&first);
    app.assert_runs(1);
    let nameless = request("/orders", "", r#"{"sku":"","qty":1}"#);
    send(&service, nameless).await.assert_problem(400, "invalid-key");
    app.assert_runs(0);
}
