//! The metadata entry of the key.
use idempotent_tower::{KeyRules, KeySyntax};
use tonic::{Code, Request};
use tonic_types::StatusExt;

use crate::support::{World, is_replay, payment, with_key};

const INVALID_ARGUMENT: Option<&str> = Some("3");

#[tokio::test]
async fn malformed_keys_are_refused_before_the_method_runs() {
    let world = World::new().await;
    let long = "k".repeat(256);
    let keys: [&[(&str, &str)]; 7] = [
        &[("idempotency-key", "a"), ("idempotency-key", "a")],
        &[("idempotency-key", "a, b")],
        &[("idempotency-key", "")],
        &[("idempotency-key", "  ")],
        &[("idempotency-key", &long)],
        &[("idempotency-key", "\"open")],
        &[("idempotency-key-bin", "YQ")],
    ];
    for headers in keys {
        let sent = world.raw_pay(headers).await;
        assert_eq!(sent.status(), INVALID_ARGUMENT, "{headers:?}: {sent:?}");
        assert!(sent.body.is_empty() && sent.headers.contains_key("grpc-status-details-bin"), "{sent:?}");
    }
    // A valid key does not make up for a binary one.
    let both = world.raw_pay(&[("idempotency-key", "a"), ("idempotency-key-bin", "YQ")]).await;
    assert_eq!((both.status(), world.shop.runs()), (INVALID_ARGUMENT, 0));
    assert_eq!(world.raw_pay(&[("idempotency-key", &long[..255])]).await.status(), Some("0"));
}

#[tokio::test]
async fn an_invalid_key_has_the_violated_field_and_is_not_echoed() {
    let world = World::new().await;
    let status = world.pay("SECRET,1", "tea").await.unwrap_err();
    let details = status.get_error_details();
    let violations = &details.bad_request().unwrap().field_violations;
    assert_eq!((violations.len(), &*violations[0].field), (1, "idempotency-key"));
    assert_eq!(details.error_info().unwrap().reason, "INVALID_KEY");
    assert!(!format!("{status:?}").contains("SECRET"), "{status:?}");
}

#[tokio::test]
async fn quoted_and_bare_keys_are_one_key() {
    let world = World::new().await;
    assert!(!is_replay(&world.pay("a", "tea").await.unwrap()));
    assert!(is_replay(&world.pay("\"a\"", "tea").await.unwrap()));
}

#[tokio::test]
async fn the_entry_and_its_syntax_are_settings() {
    let rules = KeyRules::default().header("x-request-id".parse().unwrap()).syntax(KeySyntax::Structured);
    let world = World::with(|layer| layer.key(rules).require_key(["/shop.Orders/*"])).await;
    let sent = world.raw_pay(&[("x-request-id", "\"a\"")]).await;
    assert_eq!(sent.status(), Some("0"));
    assert_eq!(world.raw_pay(&[("x-request-id", "a")]).await.status(), INVALID_ARGUMENT);
    assert_eq!(world.raw_pay(&[("x-request-id-bin", "YQ")]).await.status(), INVALID_ARGUMENT);
    let missing = world.send(with_key("a", payment("tea"))).await.unwrap_err();
    assert!(missing.message().contains("`x-request-id`"), "{missing:?}");
}

#[tokio::test]
async fn a_method_that_requires_a_key_refuses_calls_without_one() {
    let world = World::with(|layer| layer.require_key(["/shop.Orders/Pay"])).await;
    let status = world.send(Request::new(payment("tea"))).await.unwrap_err();
    assert_eq!((status.code(), world.shop.runs()), (Code::InvalidArgument, 0));
    assert_eq!(status.get_error_details().error_info().unwrap().reason, "MISSING_KEY");
    assert_eq!(status.get_error_details().bad_request().unwrap().field_violations[0].field, "idempotency-key");
    assert!(!is_replay(&world.pay("a", "tea").await.unwrap()));
}
