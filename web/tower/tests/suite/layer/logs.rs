//! No log line at any level contains a key, a token or a body.
use std::sync::{LazyLock, Once};

use http::Method;
use idempotent_core::{Policy, Tokens};
use idempotent_harness::LogLines;
use idempotent_testkit::{FOREVER, StoreOperation};
use idempotent_tower::{IdempotencyLayer, ResponseRules};

use crate::layer::support::{World, ask, by_user, order_by, secs};

static SAID: LazyLock<LogLines> = LazyLock::new(LogLines::default);

/// Installs the subscriber for all threads.
pub(crate) fn listen() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| tracing::subscriber::set_global_default(SAID.clone()).unwrap());
}

const SECRET: &str = "hush-4111-1111";

#[tokio::test]
async fn no_log_line_contains_a_key_token_caller_or_body() {
    let world = World::new();
    let shop = world.shop_behind(world.layer().max_body(1_000).scope("log-test"));
    let secret = |end: &str| order_by(&format!("{SECRET}{end}")).user(SECRET).body(format!("{SECRET}{end}"));
    secret("a").send(&shop).await.ran(1);
    secret("a").send(&shop).await.replays(1);
    secret("a").body("other").send(&shop).await.problem(422, "key-reused");
    order_by(&format!("{SECRET},b")).send(&shop).await.problem(400, "invalid-key");
    secret("c").body(SECRET.repeat(100)).send(&shop).await.problem(413, "body-too-large");
    secret("d").with("x-status", "500").send(&shop).await;
    secret("e").with("x-panic", "1").send(&shop).await;
    secret("f").with("x-size", (2 << 20).to_string()).send(&shop).await;
    secret("g").with("x-sleep", "90000").begin(&shop, &world.clock).await;
    secret("g").send(&shop).await.problem(409, "in-flight");
    world.store.fail_before(StoreOperation::Renew, FOREVER);
    world.clock.advance(secs(60)).await;
    let taken_over = secret("g").begin(&shop, &world.clock).await;
    world.clock.advance(secs(60)).await;
    taken_over.await.unwrap();
    world.store.down();
    let down = secret("h").begin(&shop, &world.clock).await;
    world.clock.advance(secs(1)).await;
    down.await.unwrap().problem(503, "store-unavailable");
    world.store.heal();

    let tokens = Tokens::new(&world.executor);
    let token = tokens.issue(SECRET).await.unwrap();
    let form = world.shop_behind(IdempotencyLayer::by_token(tokens, by_user()));
    ask(Method::POST, "/orders").with("x-idempotent-token", token.as_str()).send(&form).await;
    ask(Method::POST, "/orders").with("x-idempotent-token", SECRET).send(&form).await;
    let wrong = world.shop_behind(world.layer().policy(Policy::new().heartbeat(secs(100))));
    secret("i").to(Method::POST, &format!("/orders/{SECRET}")).send(&wrong).await.problem(500, "misconfigured");
    let hook = ResponseRules::default().sanitize(|_| panic!("{SECRET}"));
    let panics = world.shop_behind(world.layer().scope("log-test-hook").response(hook));
    secret("j").send(&panics).await;
    let short = world.shop_behind(world.layer().scope("log-test-short").policy(Policy::new().max_result(1)));
    secret("l").send(&short).await.ran(1);
    let idle = world.shop_behind(world.layer().token_header(http::HeaderName::from_static("x-form")));
    secret("k").send(&idle).await.problem(500, "misconfigured");

    let said = SAID.text();
    for wanted in [
        "log-test",
        "took over",
        "store request failed",
        "not stored",
        "a request cannot be handled",
        "a hook panicked",
        "`token_header`",
    ] {
        assert!(said.contains(wanted), "{wanted}: the listener hears");
    }
    for line in said.lines() {
        assert!(!line.contains(SECRET) && !line.contains(token.as_str()), "{line}");
    }
}
