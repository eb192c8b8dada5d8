//! Callers and routes as parts of the key.
use axum::Router;
use axum::routing::post;
use http::Method;
use idempotent_core::{DisplayKey, Identity, Policy, Scene, key_hash};
use idempotent_tower::{Caller, IdempotencyLayer, KeyRules, PayloadCheck, Principal};

use crate::layer::support::{Shop, World, ask, by_user, order_by};

/// Authentication inside the layer has not run yet.
#[tokio::test]
async fn credentials_without_a_named_caller_are_rejected_unless_all_callers_are_one() {
    let world = World::new();
    let shop = world.shop();
    let with_credentials = order_by("a").with("authorization", "Bearer ann");
    with_credentials.clone().user("ann").send(&shop).await.ran(1);
    with_credentials.send(&shop).await.problem(500, "misconfigured");
    let all_one = world.shop_behind(IdempotencyLayer::new(world.executor.clone(), Principal::none()));
    with_credentials.send(&all_one).await.ran(1);
    let optional = by_user().allow_anonymous_credentials();
    let optional = world.shop_behind(IdempotencyLayer::new(world.executor.clone(), optional).scope("optional"));
    with_credentials.send(&optional).await.ran(1);
    with_credentials.clone().user("ann").send(&optional).await.ran(2);
}

#[tokio::test]
async fn a_replay_never_crosses_callers_whatever_their_names() {
    let world = World::new();
    let shop = world.shop();
    // Names that imitate a key, another kind of caller, or the hash of a long name.
    let long = "u".repeat(600);
    let hashed = idempotent_core::key_hash(&long);
    let names = [
        "ann",
        "ann ",
        "ANN",
        "anonymous",
        "named",
        "long",
        "a:b",
        "a",
        "\"a\"",
        "named\u{7f}".trim_end_matches('\u{7f}'),
        &long,
        &hashed,
    ];
    let distinct: std::collections::BTreeSet<_> = names.into_iter().collect();
    for key in ["b:c", "c"] {
        for (run, name) in distinct.iter().enumerate() {
            let before = shop.runs();
            assert!(!order_by(key).user(name).send(&shop).await.is_replay(), "{run} {name}");
            assert_eq!(shop.runs(), before + 1, "{name}");
        }
        assert!(!order_by(key).send(&shop).await.is_replay());
    }
}

#[tokio::test]
async fn long_caller_names_are_distinct() {
    let world = World::new();
    let shop = world.shop();
    let [one, other] = ["1", "2"].map(|end| format!("{}{end}", "u".repeat(5_000)));
    order_by("a").user(&one).send(&shop).await.ran(1);
    order_by("a").user(&other).send(&shop).await.ran(2);
    order_by("a").user(&one).send(&shop).await.replays(1);
}

#[tokio::test]
async fn no_storage_key_contains_key_caller_or_path() {
    let world = World::new();
    let shop = world.shop();
    order_by("card-4111").user("ann@home").to(Method::PATCH, "/orders/secret-17").send(&shop).await.ran(1);
    let keys: Vec<_> = world.keys().iter().map(ToString::to_string).collect();
    assert!(!keys.is_empty());
    for key in keys {
        assert!(key.starts_with("idempotent:rest:PATCH_/orders/_id_:{"), "{key}");
        for secret in ["4111", "ann", "secret-17"] {
            assert!(!key.contains(secret), "{key}");
        }
    }
}

#[tokio::test]
async fn without_a_route_template_the_path_is_part_of_the_key() {
    let world = World::new();
    let count = Shop::of(Router::new().fallback(async || "1:").layer(world.layer()));
    order_by("a").to(Method::POST, "/x/1").send(&count).await.ran(1);
    order_by("a").to(Method::POST, "/x/1").send(&count).await.replays(1);
    order_by("a").to(Method::POST, "/x/2").send(&count).await.ran(1);
    order_by("a").to(Method::POST, "/x/%31").send(&count).await.ran(1);
    order_by("a").to(Method::POST, "/x/1?q").send(&count).await.problem(422, "key-reused");
    let keys: Vec<_> = world.keys().iter().map(|key| key.name().to_owned()).collect();
    assert!(keys.iter().all(|name| name == "idempotent:rest:POST"), "no path, which may be personal: {keys:?}");
}

/// The executor accepts 1,024 bytes of key and path together.
#[tokio::test]
async fn paths_without_a_template_may_be_longer_than_a_key() {
    let world = World::new();
    let count = Shop::of(Router::new().fallback(async || "1:").layer(world.layer()));
    let key = "k".repeat(255);
    for length in [760, 768, 769, 1_023, 1_024, 3_000] {
        let path = format!("/{}", "x".repeat(length - 1));
        let to = |path: &str| order_by(&key).to(Method::POST, path);
        to(&path).send(&count).await.ran(1);
        let stored = if length + key.len() > 1_024 {
            Identity::new(Scene::Rest, "POST", &("long", key_hash(&path), key.as_bytes()))
        } else {
            Identity::new(Scene::Rest, "POST", &(&*path, key.as_bytes()))
        };
        let stored = stored.tenant(&Caller::anonymous()).key("idempotent").unwrap();
        assert_eq!(world.keys().last(), Some(&stored), "a duplicate of another release has this key, too: {length}");
        to(&path).send(&count).await.replays(1);
        to(&format!("{path}y")).send(&count).await.ran(1);
        to(&path.replacen('x', "y", 1)).send(&count).await.ran(1);
    }
}

#[tokio::test]
async fn namespaces_are_separate() {
    let world = World::new();
    let [one, other] = ["one", "other"].map(|name| world.shop_behind(world.layer().namespace(name)));
    order_by("a").send(&one).await.ran(1);
    order_by("a").send(&other).await.ran(1);
    order_by("a").send(&one).await.replays(1);
}

#[tokio::test]
async fn operators_see_as_much_of_a_key_as_the_policy_allows() {
    let world = World::new();
    let shop = world.shop_behind(world.layer().policy(Policy::new().display_key(DisplayKey::Hash)));
    order_by("card-hush").with("x-sleep", "1000").begin(&shop, &world.clock).await;
    let record = idempotent_core::Store::peek(&world.store, &world.keys()[0]).await.unwrap().unwrap();
    assert!(!format!("{record:?}").contains("hush"));
}

#[tokio::test]
async fn another_path_of_one_template_is_rejected_even_inside_a_nested_router() {
    for check in [PayloadCheck::bytes(), PayloadCheck::off()] {
        let world = World::new();
        let inner = Router::new().route("/orders", post(async || "1:")).layer(world.layer().payload(check));
        let shop = Shop::of(Router::new().nest("/users/{user}", inner));
        let of = |user: &str| order_by("a").to(Method::POST, &format!("/users/{user}/orders"));
        of("1").send(&shop).await.ran(1);
        of("1").send(&shop).await.replays(1);
        of("2").send(&shop).await.problem(422, "key-reused");
    }
}

#[tokio::test]
async fn paths_without_a_template_are_separate_inside_a_nested_service() {
    let world = World::new();
    let inner = tower::ServiceBuilder::new().layer(world.layer()).service(Router::new().fallback(async || "1:"));
    let shop = Shop::of(Router::new().nest_service("/a", inner.clone()).nest_service("/b", inner));
    let to = |path| ask(Method::POST, path).with("idempotency-key", "a");
    to("/a/x").send(&shop).await.ran(1);
    to("/b/x").send(&shop).await.ran(1);
    to("/a/x").send(&shop).await.replays(1);
}

#[tokio::test]
async fn keys_callers_and_routes_with_shifted_boundaries_are_distinct() {
    let world = World::new();
    let shop = world.shop();
    let asks = [
        order_by("b:c").user("a"),
        order_by("c").user("a:b"),
        order_by("a:b:c"),
        order_by("\"{a}\""),
        order_by("{a"),
        order_by("\"a}\""),
        order_by("*"),
        order_by("a").to(Method::POST, "/orders/a"),
        order_by("orders/a").to(Method::POST, "/orders"),
        order_by("a").to(Method::POST, "/baskets"),
    ];
    for (run, ask) in (1..).zip(&asks) {
        ask.send(&shop).await.ran(run);
    }
    for (run, ask) in (1..).zip(&asks) {
        ask.send(&shop).await.replays(run);
    }
}

#[tokio::test]
async fn keys_from_the_body_may_contain_braces_newlines_and_nul_but_not_a_mebibyte() {
    let world = World::new();
    let layer = world
        .layer()
        .key(KeyRules::default().max_len(usize::MAX))
        .key_from(|parts, _| Some(parts.uri.query()?.replace("%0A", "\n").replace("%00", "\0")));
    let shop = world.shop_behind(layer.payload(idempotent_tower::PayloadCheck::by(|_, _| None)));
    let by = |query: &str| ask(Method::POST, &format!("/orders?{query}"));
    for (run, query) in (1..).zip(["{}", "a%0A", "a%0Ab", "a%00", "a", "%00a"]) {
        let query = query.replace('{', "%7B").replace('}', "%7D");
        by(&query).send(&shop).await.ran(run);
        by(&query).send(&shop).await.replays(run);
    }
    let told = by(&"k".repeat(60_000)).send(&shop).await;
    let detail = told.problem(400, "invalid-key").told()["detail"].as_str().unwrap().to_owned();
    assert!(detail.contains("60000 bytes") && detail.contains("1024"), "{detail}");
    by("").send(&shop).await.problem(400, "invalid-key");
}
