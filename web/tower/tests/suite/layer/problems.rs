//! The problems that clients receive.
use http::{Method, Response};
use idempotent_core::{KeyError, Rejection, StoreError, StoreErrorKind, Tokens};
use idempotent_tower::{IdempotencyLayer, Problem, ProblemKind};

use crate::layer::support::{Sent, World, ask, by_user, order_by, secs};

const ALL: [ProblemKind; 18] = [
    ProblemKind::MissingKey,
    ProblemKind::InvalidKey,
    ProblemKind::InvalidBody,
    ProblemKind::MissingToken,
    ProblemKind::NoPrincipal,
    ProblemKind::InFlight,
    ProblemKind::NotDue,
    ProblemKind::DuplicateRequest,
    ProblemKind::UnknownToken,
    ProblemKind::ResponseNotRetained,
    ProblemKind::FailedBefore,
    ProblemKind::BodyTooLarge,
    ProblemKind::KeyReused,
    ProblemKind::HandlerPanicked,
    ProblemKind::Misconfigured,
    ProblemKind::StoreUnavailable,
    ProblemKind::Draining,
    ProblemKind::Interrupted,
];

fn sent(response: Response<bytes::Bytes>) -> Sent {
    let (parts, body) = response.into_parts();
    Sent { status: parts.status.as_u16(), headers: parts.headers, body, extensions: parts.extensions }
}

#[test]
fn every_problem_has_the_form_of_rfc_9457() {
    for kind in ALL {
        let sent = sent(Problem::new(kind).to_response());
        sent.problem(kind.status().as_u16(), kind.code());
        let told = sent.told();
        assert_eq!(told["retryable"], kind.is_retryable());
        assert_eq!(told["type"], format!("{}{}", Problem::BASE, kind.code()));
        let mut members: Vec<_> = told.as_object().unwrap().keys().map(String::as_str).collect();
        members.sort_unstable();
        assert_eq!(members, ["code", "detail", "retryable", "status", "title", "type"]);
        let about_keys = matches!(kind, ProblemKind::MissingKey | ProblemKind::InvalidKey | ProblemKind::KeyReused);
        assert_eq!(sent.header("link").is_some(), about_keys, "{kind:?}");
    }
}

#[tokio::test]
async fn no_key_token_or_body_is_echoed() {
    let world = World::new();
    let tokens = Tokens::new(&world.executor);
    let by_token = world.shop_behind(IdempotencyLayer::by_token(tokens, by_user()));
    let shop = world.shop_behind(world.layer().max_body(100));
    let secret = "SECRET-4111";
    let mut told = vec![
        order_by(&format!("{secret},x")).send(&shop).await,
        order_by(&format!("\"{secret}")).send(&shop).await,
        order_by(&secret.repeat(30)).send(&shop).await,
        order_by(secret).body(secret.repeat(30)).send(&shop).await,
        ask(Method::POST, "/orders").body(secret).send(&shop).await,
        ask(Method::POST, "/orders").with("x-idempotent-token", secret).body(secret).send(&by_token).await,
        ask(Method::POST, "/orders").with("x-idempotent-token", secret.repeat(300)).send(&by_token).await,
    ];
    order_by(secret).body("one").with("x-sleep", "5000").begin(&shop, &world.clock).await;
    told.push(order_by(secret).body("one").send(&shop).await);
    told.push(order_by(secret).body(secret).send(&shop).await);
    told.push(order_by("p").body(secret).with("x-panic", "1").send(&shop).await);
    world.store.down();
    let down = order_by(&format!("{secret}2")).begin(&shop, &world.clock).await;
    world.clock.advance(secs(1)).await;
    told.push(down.await.unwrap());
    for sent in told {
        assert!(sent.status >= 400 && sent.header("content-type") == Some("application/problem+json"), "{sent:?}");
        assert!(!format!("{sent:?}").contains("SECRET"), "{sent:?}");
    }
}

#[tokio::test]
async fn the_base_of_problem_types_is_configurable() {
    let world = World::new();
    let shop = world.shop_behind(world.layer().problem_base("https://shop.example/problems/"));
    let sent = ask(Method::POST, "/orders").send(&shop).await;
    assert_eq!(sent.told()["type"], "https://shop.example/problems/missing-key");
}

#[test]
fn no_text_of_a_problem_becomes_a_header() {
    let hostile = "x\r\nset-cookie: a=b\r\n\r\n<script>";
    let sent = sent(Problem::new(ProblemKind::InFlight).detail(hostile).base(hostile).to_response());
    assert_eq!(sent.told()["detail"], hostile);
    assert!(
        sent.headers.values().all(|value| !value.as_bytes().contains(&b'\n')) && sent.header("set-cookie").is_none()
    );
    assert!(!sent.body.contains(&b'\n'), "escaped");
}

#[test]
fn every_rejection_has_its_problem() {
    let scope = || std::sync::Arc::<str>::from("SECRET");
    let empty = |what: &str, missing| KeyError::Empty { scene: "rest".into(), what: what.into(), missing };
    let key = |what: &str| empty(what, false);
    let table: Vec<(Rejection, u16, &str)> = vec![
        (Rejection::InFlight { retry_after: secs(1), message: None }, 409, "in-flight"),
        (Rejection::Delayed { retry_after: secs(1) }, 409, "not-due"),
        (Rejection::Waiting { retry_after: secs(1) }, 409, "not-due"),
        (Rejection::Held { retry_after: secs(1), why: idempotent_core::BrokenOrder::Missing }, 409, "not-due"),
        (Rejection::Draining { retry_after: secs(1) }, 503, "draining"),
        (Rejection::ConsumedWithoutResult { cause: None }, 409, "response-not-retained"),
        (Rejection::Duplicate { retry_after: None, message: None }, 409, "duplicate-request"),
        (Rejection::UnknownToken, 409, "unknown-token"),
        (Rejection::Failed { error: scope() }, 409, "failed-before"),
        (
            Rejection::Dead { attempts: 1, fencing: idempotent_core::FencingToken(1), error: scope() },
            409,
            "failed-before",
        ),
        (Rejection::Mismatch, 422, "key-reused"),
        (key("the request's key").into(), 400, "invalid-key"),
        (empty("the request's key", true).into(), 400, "missing-key"),
        (key("tenant").into(), 401, "no-principal"),
        (empty("tenant", true).into(), 401, "no-principal"),
        (key("tenant, part 2").into(), 401, "no-principal"),
        (KeyError::NoName { part: "scope" }.into(), 500, "misconfigured"),
        (KeyError::Fingerprint { error: "SECRET".into() }.into(), 400, "invalid-body"),
        (Rejection::LeaseLost, 503, "interrupted"),
        (Rejection::Unrecorded { cause: None }, 503, "interrupted"),
        (Rejection::Nested { scope: scope() }, 500, "misconfigured"),
        (Rejection::NoExecutor { scope: scope() }, 500, "misconfigured"),
        (StoreError::new(StoreErrorKind::NotApplied).because("SECRET").into(), 503, "store-unavailable"),
        (StoreError::new(StoreErrorKind::Ambiguous).into(), 503, "store-unavailable"),
        (StoreError::new(StoreErrorKind::Corrupt).because("SECRET").into(), 500, "misconfigured"),
        (StoreError::new(StoreErrorKind::Denied).into(), 500, "misconfigured"),
    ];
    for (rejection, status, code) in table {
        let sent = sent(Problem::from(rejection).to_response());
        sent.problem(status, code);
        assert!(!sent.told().to_string().contains("SECRET"), "{sent:?}");
        assert_eq!(
            sent.retry_after().is_some(),
            matches!(code, "in-flight" | "not-due" | "draining" | "interrupted" | "store-unavailable")
        );
    }
}
