//! Keys, callers and routes whose boundaries could be confused.
use http::Method;
use idempotent_tower::KeyRules;

use crate::layer::support::{World, ask, order_by};

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
