//! Settings without effect are reported by name, and the layer rejects each request until they are fixed.
use std::time::Duration;

use http::StatusCode;
use http::header::HeaderName;
use idempotent_core::{Policy, Tokens};
use idempotent_tower::{Denied, IdempotencyLayer, KeyRules, PayloadCheck, Principal, ResponseRules};

use crate::layer::panicking_hooks::Hostile;
use crate::layer::support::{World, by_user, order_by, secs};

type Set = fn(IdempotencyLayer) -> IdempotencyLayer;

fn key(layer: IdempotencyLayer) -> IdempotencyLayer {
    layer.key(KeyRules::default())
}

fn key_from(layer: IdempotencyLayer) -> IdempotencyLayer {
    layer.key_from(|_, _| None)
}

fn token_header(layer: IdempotencyLayer) -> IdempotencyLayer {
    layer.token_header(HeaderName::from_static("x-form"))
}

fn route(layer: IdempotencyLayer) -> IdempotencyLayer {
    layer.route(|_| None)
}

/// Checks that each of these setters has no effect in a layer, and that the layer then rejects requests.
async fn do_nothing(world: &World, layer: &IdempotencyLayer, setters: &[(&str, &str, Set)]) {
    assert!(layer.check().is_ok());
    for (name, remedy, set) in setters {
        let wrong = set(layer.clone());
        let error = wrong.check().map_err(|error| error.to_string()).expect_err(name);
        assert!(error.contains(&format!("`{name}`")) && error.contains(remedy), "{name}: {error}");
        let shop = world.shop_behind(wrong);
        let ask = order_by("a").with("x-idempotent-token", "t");
        let told = ask.send(&shop).await;
        told.problem(500, "misconfigured");
        assert!(!told.told().to_string().contains(name), "clients are not told: {told:?}");
        assert_eq!(shop.runs(), 0);
    }
    assert!(world.is_untouched());
}

#[tokio::test]
async fn check_names_setters_without_effect_for_tokens() {
    let world = World::new();
    let layer = IdempotencyLayer::by_token(Tokens::new(&world.executor), by_user());
    let setters: [(&str, &str, Set); 9] = [
        ("key", "token_header", key),
        ("key_from", "token_header", key_from),
        ("required", "skip", |layer| layer.required(false)),
        ("payload", "remove the call", |layer| layer.payload(PayloadCheck::off())),
        ("scope", "Tokens::scope", |layer| layer.scope("one")),
        ("route", "Tokens::scope", route),
        ("namespace", "executor", |layer| layer.namespace("one")),
        ("fail_open", "remove the call", |layer| layer.fail_open(true)),
        ("window", "ttl", |layer| layer.window(secs(5))),
    ];
    do_nothing(&world, &layer, &setters).await;
}

#[tokio::test]
async fn check_names_setters_without_effect_for_params() {
    let world = World::new();
    let layer = IdempotencyLayer::by_param(world.executor.clone(), by_user());
    let setters: [(&str, &str, Set); 6] = [
        ("window", "such as 5 s", |layer| layer.window(Duration::ZERO)),
        ("key", "new()", key),
        ("key_from", "new()", key_from),
        ("required", "skip", |layer| layer.required(false)),
        ("token_header", "by_token()", token_header),
        ("ttl", "window", |layer| layer.ttl(secs(60))),
    ];
    do_nothing(&world, &layer, &setters).await;
}

/// A layer without keys needs a window, wherever it is set.
#[tokio::test]
async fn params_without_a_window_are_rejected() {
    let world = World::new();
    let layer = || IdempotencyLayer::by_param(world.executor.clone(), by_user());
    let zero = Policy::new().window(Duration::ZERO);
    let retained = Policy::new().retain(secs(3_600));
    for (case, layer) in [
        ("zero by a policy", layer().policy(zero)),
        ("zero by a policy after a window", layer().window(secs(5)).policy(zero)),
        ("replaced by a policy's retention", layer().policy(retained)),
    ] {
        let refused = layer.check().expect_err(case).to_string();
        assert!(refused.contains("no `window` is in force"), "{case}: {refused}");
    }
    for layer in [layer(), layer().policy(zero).window(secs(5)), layer().policy(retained).window(secs(5))] {
        assert_eq!(layer.check(), Ok(()));
    }
}

#[tokio::test]
async fn check_names_setters_without_effect_for_keys() {
    let world = World::new();
    let setters: [(&str, &str, Set); 4] = [
        ("token_header", "KeyRules::header", token_header),
        ("ttl", "window", |layer| layer.ttl(secs(60)).window(secs(5))),
        ("scope", "route", |layer| route(layer.scope("one"))),
        ("route", "scope", |layer| route(layer).scope("one")),
    ];
    do_nothing(&world, &world.layer(), &setters).await;
}

#[tokio::test]
async fn check_ignores_setters_that_were_reset() {
    let world = World::new();
    let by_token = IdempotencyLayer::by_token(Tokens::new(&world.executor), by_user());
    assert_eq!(by_token.fail_open(true).fail_open(false).check(), Ok(()));
    assert_eq!(world.layer().ttl(secs(60)).window(secs(5)).window(Duration::ZERO).check(), Ok(()));
}

#[tokio::test]
async fn check_names_a_spill_smaller_than_a_record() {
    let world = World::new();
    let rules = || ResponseRules::default().max_response(100);
    assert!(world.layer().response(rules().spill(Hostile::default(), 101)).check().is_ok());
    let setters: [(&str, &str, Set); 1] = [("spill", "max_response", |layer| {
        layer.response(ResponseRules::default().max_response(100).spill(Hostile::default(), 100))
    })];
    do_nothing(&world, &world.layer(), &setters).await;
}

#[tokio::test]
async fn check_names_all_errors_at_once() {
    let world = World::new();
    let layer = IdempotencyLayer::by_param(world.executor.clone(), by_user());
    let error = layer.ttl(secs(60)).required(true).lease(Duration::ZERO).check().unwrap_err().to_string();
    for wrong in ["`ttl`", "`required`", "lease is 0s"] {
        assert!(error.contains(wrong), "{wrong}: {error}");
    }
}

#[tokio::test]
async fn other_methods_pass_through_a_misconfigured_layer() {
    let world = World::new();
    let shop = world.shop_behind(token_header(world.layer()));
    order_by("a").to(http::Method::GET, "/orders").send(&shop).await.ran(1);
}

#[tokio::test]
async fn duplicates_of_keys_can_be_rejected_instead_of_replayed() {
    let world = World::new();
    let shop = world.shop_behind(world.layer().replay(false));
    order_by("a").send(&shop).await.ran(1);
    order_by("a").send(&shop).await.problem(409, "duplicate-request");
}

#[tokio::test]
async fn check_names_empty_settings() {
    let world = World::new();
    let setters: [(&str, &str, Set); 3] = [
        ("methods", "remove the layer", |layer| layer.methods([])),
        ("scope", "remove the call", |layer| layer.scope("")),
        ("namespace", "remove the call", |layer| layer.namespace("")),
    ];
    do_nothing(&world, &world.layer(), &setters).await;
}

#[tokio::test]
async fn a_denial_is_an_error_to_the_client() {
    let world = World::new();
    let layer =
        IdempotencyLayer::new(world.executor.clone(), Principal::from_fn(|_| Err(Denied::status(StatusCode::OK))));
    let shop = world.shop_behind(layer);
    assert_eq!(order_by("a").send(&shop).await.status, 403);
    assert_eq!(shop.runs(), 0);
}
