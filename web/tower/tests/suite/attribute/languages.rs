//! The text of a rejected duplicate in the language that the client prefers.
use idempotent_core::DuplicateMessages;
use idempotent_tower::AcceptLanguageLayer;

use super::*;

#[idempotent(
    scene = rest,
    key = key,
    with = app,
    tenant = (), fingerprint = (), reply = Http,
    crate = ::idempotent_core,
)]
async fn held(State(app): State<App>, key: IdempotencyKey) -> impl IntoResponse {
    app.held().await;
}

#[idempotent(
    scene = rest,
    key = key,
    with = app,
    tenant = (), fingerprint = (), reply = Http,
    detach,
    message = DuplicateMessages::new("en", "Wait.").language("de", "Bitte warten."),
    crate = ::idempotent_core,
)]
async fn with_own_messages(State(app): State<App>, key: IdempotencyKey) -> impl IntoResponse {
    app.held().await;
}

fn app() -> App {
    let messages = DuplicateMessages::english_and_chinese();
    App::over(Executor::builder(MemoryStore::new()).duplicate_messages(messages).build().unwrap())
}

/// Sends a duplicate of a request in flight, and returns the detail and language of its problem.
async fn duplicate(service: &Router, accepted: &str) -> (String, String) {
    let mut duplicate = request("/orders", "k", "{}");
    duplicate.headers_mut().insert(header::ACCEPT_LANGUAGE, accepted.parse().unwrap());
    let answer = send(service, duplicate).await;
    answer.assert_problem(409, "in-flight");
    (answer.json()["detail"].as_str().unwrap().to_owned(), answer.header("content-language").to_owned())
}

async fn begin(app: &App, service: &Router) -> tokio::task::JoinHandle<Answer> {
    let service = service.clone();
    let first = tokio::spawn(async move { send(&service, request("/orders", "k", "{}")).await });
    app.begun.notified().await;
    first
}

#[tokio::test]
async fn a_rejected_duplicate_receives_the_executors_text_in_its_language() {
    let app = app();
    let service = at(&app, "/orders", held).layer(AcceptLanguageLayer::new());
    let first = begin(&app, &service).await;
    for accepted in ["zh-CN,zh;q=0.9,en;q=0.8", "fr, zh-Hans-CN;q=0.1, en;q=0.05"] {
        let (detail, language) = duplicate(&service, accepted).await;
        assert_eq!((&*detail, &*language), ("您操作太快，请稍后再试", "zh"), "{accepted}");
    }
    for accepted in ["en", "fr", "*", "zh;q=0", "zh;q=NaN"] {
        let (detail, language) = duplicate(&service, accepted).await;
        assert!(detail.starts_with("This request was received already."), "{accepted}: {detail}");
        assert_eq!(language, "en", "{accepted}");
    }
    app.door.notify_one();
    assert_eq!(first.await.unwrap().status, 200);
}

#[tokio::test]
async fn a_function_with_messages_of_its_own_uses_them_also_in_a_detached_run() {
    let app = app();
    let service = at(&app, "/orders", with_own_messages).layer(AcceptLanguageLayer::new());
    let first = begin(&app, &service).await;
    for (accepted, want) in [("de-AT", ("Bitte warten.", "de")), ("zh", ("Wait.", "en"))] {
        let (detail, language) = duplicate(&service, accepted).await;
        assert_eq!((&*detail, &*language), want, "{accepted}");
    }
    app.door.notify_one();
    assert_eq!(first.await.unwrap().status, 200);
}

#[tokio::test]
async fn without_the_layer_the_default_text_is_sent() {
    let app = app();
    let service = at(&app, "/orders", held);
    let first = begin(&app, &service).await;
    let (detail, language) = duplicate(&service, "zh").await;
    assert!(detail.starts_with("This request was received already."), "{detail}");
    assert_eq!(language, "en");
    app.door.notify_one();
    assert_eq!(first.await.unwrap().status, 200);
}
