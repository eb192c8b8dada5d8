//! Authentication, roles and requests from other sites.
use std::net::SocketAddr;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::ConnectInfo;
use http::{Request, StatusCode};
use idempotent_console::{Access, Console, Role, SetupError, TokenList};

use crate::site::{ORDERS, Site, form, request, store};

/// A list with the token `secret` of an operator.
fn tokens() -> TokenList {
    let hash = "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b";
    TokenList::parse(&format!("ann:operator:{hash}")).unwrap()
}

async fn with_tokens() -> Site {
    Site::with(store(1, 1).await, |builder| builder.access(Access::tokens(tokens()))).await
}

fn login(token: &str) -> Request<Body> {
    form(Request::builder().method("POST").uri("/login").header("host", "console.test"), &[("access_token", token)])
}

#[test]
fn a_console_without_authentication_is_not_built() {
    assert!(matches!(Console::builder().build(), Err(SetupError::NoAccess)));
    let twice = Console::builder().access(Access::tokens(tokens()));
    let counters = idempotent::mq::ConsumerCounters::default();
    let twice = twice.consumer("a", counters.clone()).consumer("a", counters);
    assert!(matches!(twice.build(), Err(SetupError::SameName { kind: "consumers", .. })));
    let executor = idempotent::Executor::new(idempotent::MemoryStore::new());
    let twice =
        Console::builder().access(Access::tokens(tokens())).executor("a", executor.clone()).executor("a", executor);
    assert!(matches!(twice.build(), Err(SetupError::SameName { kind: "executors", .. })));
    let open = || async { Err::<Box<dyn idempotent::mq::DeadLetters>, _>("no queue") };
    let store: Arc<dyn idempotent::Store> = Arc::new(idempotent::MemoryStore::new());
    let twice = Console::builder().access(Access::tokens(tokens()));
    let twice = twice.queue_with_store("a", open, store.clone()).queue_with_store("a", open, store);
    assert!(matches!(twice.build(), Err(SetupError::SameName { kind: "queues", .. })));
}

#[tokio::test]
async fn each_role_has_exactly_its_actions() {
    // The permissions of viewer, operator and admin.
    let table = [("forget", [false, true, true]), ("release", [false, false, true]), ("redrive", [false, true, true])];
    for (action, allowed) in table.into_iter().chain([("discard", [false, false, true])]) {
        for (role, is_allowed) in ["viewer", "operator", "admin"].into_iter().zip(allowed) {
            let site = Site::new().await;
            let user = format!("ann:{role}");
            let entry = match action {
                "forget" | "release" => site.get("eve:admin", "/dead").await.inputs("entry").remove(0),
                _ => site.get("eve:admin", "/dead-letters?read=1").await.inputs("entry").remove(0),
            };
            let plan = site.plan(&user, action, &[entry]).await;
            let expected = if is_allowed { StatusCode::OK } else { StatusCode::FORBIDDEN };
            assert_eq!(plan.status, expected, "{action} by {role}");
        }
    }
}

#[tokio::test]
async fn a_viewer_sees_no_button_of_an_action() {
    let site = Site::new().await;
    for page in ["/keys", "/dead", "/dead-letters?read=1"] {
        let answer = site.get("ann:viewer", page).await;
        assert!(!answer.body.contains("name=\"action\"") && answer.inputs("entry").is_empty(), "{page}");
    }
}

#[tokio::test]
async fn a_read_only_console_has_no_route_of_an_action() {
    let site = Site::for_role(Role::Admin, store(1, 1).await, |builder| builder.read_only(true)).await;
    let token = site.token("").await;
    for path in ["/plan", "/apply", "/cancel"] {
        assert_eq!(site.post("", path, &[("token", &token)]).await.status, StatusCode::NOT_FOUND, "{path}");
    }
    assert_eq!(site.get("", "/task?id=1").await.status, StatusCode::NOT_FOUND);
    for page in ["/dead", "/keys", "/dead-letters?read=1"] {
        let answer = site.get("", page).await;
        assert!(!answer.body.contains("name=\"action\"") && answer.inputs("entry").is_empty(), "{page}");
        assert!(answer.body.contains("read-only"), "{page}");
    }
}

#[tokio::test]
async fn without_a_user_nothing_is_shown() {
    let site = Site::new().await;
    for path in ["/overview", "/keys", "/key?k=x", "/dead-letters", "/health", "/audit", "/missing"] {
        let answer = site.get("", path).await;
        assert_eq!(answer.status, StatusCode::UNAUTHORIZED, "{path}");
    }
    assert_eq!(site.get("", "/healthz").await.body, "ok");
    assert_eq!(site.get("", "/readyz").await.body, "ok");
}

#[tokio::test]
async fn only_a_person_who_opens_a_page_is_sent_to_the_login() {
    let site = with_tokens().await;
    assert_eq!(site.get("", "/overview").await.location(), "login");
    assert_eq!(site.post("", "/plan", &[]).await.status, StatusCode::UNAUTHORIZED);
    let program = request("GET", "", "/overview").header("accept", "application/json").body(Body::empty()).unwrap();
    assert_eq!(site.send(program).await.status, StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn forms_of_other_sites_and_without_their_token_are_refused() {
    let site = Site::new().await;
    let entry = site.get("ann:operator", "/dead").await.inputs("entry").remove(0);
    let (own, other) = (site.token("ann:operator").await, site.token("bob:operator").await);
    let fields = |token: &str| {
        let fields = [("token", token), ("target", ORDERS), ("action", "forget"), ("entry", entry.as_str())];
        fields.map(|(name, value)| (name.to_owned(), value.to_owned()))
    };
    let post = async |token: &str, change: &dyn Fn(&mut Request<Body>)| {
        let fields = fields(token);
        let fields: Vec<_> = fields.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        let mut request = form(request("POST", "ann:operator", "/plan"), &fields);
        change(&mut request);
        site.send(request).await.status
    };
    assert_eq!(post(&own, &|_| {}).await, StatusCode::OK);
    for token in ["", "0", &other, &own[1..]] {
        assert_eq!(post(token, &|_| {}).await, StatusCode::FORBIDDEN, "{token}");
    }
    let set = |request: &mut Request<Body>, name: &'static str, value: &str| {
        request.headers_mut().insert(name, value.parse().unwrap());
    };
    assert_eq!(post(&own, &|request| set(request, "origin", "https://evil.example")).await, StatusCode::FORBIDDEN);
    assert_eq!(post(&own, &|request| set(request, "origin", "null")).await, StatusCode::FORBIDDEN);
    assert_eq!(post(&own, &|request| set(request, "sec-fetch-site", "cross-site")).await, StatusCode::FORBIDDEN);
    assert_eq!(post(&own, &|request| set(request, "content-type", "text/plain")).await, StatusCode::BAD_REQUEST);
    assert_eq!(site.get("ann:operator", "/plan").await.status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn a_login_opens_a_session_and_a_logout_ends_it() {
    let site = with_tokens().await;
    let get = async |path: &str, cookie: &str| {
        let request = Request::builder().uri(path).header("host", "console.test").header("cookie", cookie);
        site.send(request.body(Body::empty()).unwrap()).await
    };
    assert_eq!(get("/overview", "a=b").await.location(), "login");
    let answer = site.send(login("secret")).await;
    assert_eq!((answer.status, answer.location()), (StatusCode::SEE_OTHER, "overview"));
    let cookie = answer.headers["set-cookie"].to_str().unwrap();
    assert!(cookie.contains("; HttpOnly; SameSite=Strict; Secure") && !cookie.contains("Path"), "{cookie}");
    let cookie = cookie.split(';').next().unwrap();
    let page = get("/keys", cookie).await;
    assert_eq!(page.status, StatusCode::OK);
    let token = page.inputs("token").remove(0);
    let post = Request::builder().method("POST").uri("/logout").header("host", "console.test").header("cookie", cookie);
    assert_eq!(site.send(form(post, &[("token", &token)])).await.location(), "login");
    assert_eq!(get("/keys", cookie).await.location(), "login");
    let site =
        Site::with(store(1, 1).await, |builder| builder.access(Access::tokens(tokens())).secure_cookie(false)).await;
    let answer = site.send(login("secret")).await;
    assert!(!answer.headers["set-cookie"].to_str().unwrap().contains("Secure"));
}

/// Returns a login or a page with a bearer token, from an address.
fn from(mut request: Request<Body>, last: u8) -> Request<Body> {
    request.extensions_mut().insert(ConnectInfo(SocketAddr::from(([10, 0, 0, last], 1))));
    request
}

#[tokio::test(start_paused = true)]
async fn failed_logins_are_refused_by_address_and_a_valid_token_passes() {
    let site = with_tokens().await;
    for _ in 0..10 {
        let answer = site.send(from(login("guess-17"), 1)).await;
        assert!(answer.status == StatusCode::UNAUTHORIZED && answer.body.contains("No user has this token"));
    }
    let answer = site.send(from(login("guess-17"), 1)).await;
    assert_eq!((answer.status, answer.headers["retry-after"].to_str().unwrap()), (StatusCode::TOO_MANY_REQUESTS, "60"));
    assert_eq!(site.send(from(login("guess-17"), 2)).await.status, StatusCode::UNAUTHORIZED);
    // Behind a proxy, all users have the address of the guesses.
    assert_eq!(site.send(from(login("secret"), 1)).await.status, StatusCode::SEE_OTHER);
    let program = Request::builder().uri("/keys").header("host", "console.test");
    let program = program.header("authorization", "Bearer secret").body(Body::empty()).unwrap();
    assert_eq!(site.send(from(program, 1)).await.status, StatusCode::OK);
    tokio::time::advance(std::time::Duration::from_secs(60)).await;
    assert_eq!(site.send(from(login("guess-17"), 1)).await.status, StatusCode::UNAUTHORIZED);
}

#[tokio::test(start_paused = true)]
async fn failed_logins_are_logged_with_their_address_and_without_their_token() {
    let guess = async || {
        let site = with_tokens().await;
        for _ in 0..12 {
            site.send(from(login("guess-17"), 1)).await;
        }
    };
    let log = idempotent_harness::LogLines::default();
    let _logging = idempotent_harness::logs_to(log.clone());
    guess().await;
    let log = log.text();
    assert_eq!(
        (log.matches("a login has failed").count(), log.matches("from=\"10.0.0.1\"").count()),
        (10, 10),
        "{log}"
    );
    assert!(
        log.matches("more failures within a minute are not logged").count() == 1 && !log.contains("guess"),
        "{log}"
    );
}

#[tokio::test]
async fn a_program_uses_a_bearer_token_without_cookies_and_form_tokens() {
    let site = with_tokens().await;
    let send = async |path: &str, token: &str, cookie: Option<&str>| {
        let request = Request::builder().uri(path).header("host", "console.test").header("accept", "application/json");
        let request = request.header("authorization", format!("Bearer {token}"));
        let request = cookie.into_iter().fold(request, |request, cookie| request.header("cookie", cookie));
        site.send(request.body(Body::empty()).unwrap()).await.status
    };
    assert_eq!(send("/keys", "secret", None).await, StatusCode::OK);
    assert_eq!(send("/keys", "wrong", None).await, StatusCode::UNAUTHORIZED);
    assert_eq!(send("/keys", "secret", Some("a=b")).await, StatusCode::BAD_REQUEST);
    let entry = {
        let request = Request::builder().uri("/dead").header("host", "console.test");
        let request = request.header("authorization", "Bearer secret").body(Body::empty()).unwrap();
        site.send(request).await.inputs("entry").remove(0)
    };
    let post = Request::builder().method("POST").uri("/plan").header("host", "console.test");
    let post = post.header("authorization", "Bearer secret");
    let plan = site.send(form(post, &[("target", ORDERS), ("action", "forget"), ("entry", &entry)])).await;
    assert_eq!(plan.status, StatusCode::OK, "{}", plan.body);
}

#[tokio::test]
async fn other_host_names_are_refused() {
    let site = Site::for_role(Role::Viewer, store(1, 0).await, |builder| builder.hosts(["console.test"])).await;
    assert_eq!(site.get("", "/overview").await.status, StatusCode::OK);
    for host in ["evil.example", "console.test.evil.example", "console.test:81"] {
        let request = Request::builder().uri("/overview").header("host", host).body(Body::empty()).unwrap();
        assert_eq!(site.send(request).await.status, StatusCode::MISDIRECTED_REQUEST, "{host}");
    }
}
