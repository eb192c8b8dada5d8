//! Headers that describe the first exchange.
use std::collections::BTreeSet;

use axum::Router;
use axum::body::Body;
use axum::response::Response;
use axum::routing::post;
use http::HeaderName;
use idempotent_tower::__private::EXCHANGE_HEADERS;
use idempotent_tower::ResponseRules;

use crate::layer::support::{Shop, World, order_by};

/// Returns a name for each entry of the list.
fn names() -> impl Iterator<Item = HeaderName> {
    EXCHANGE_HEADERS.iter().map(|header| header.replace('*', "-x").parse().unwrap())
}

/// Returns the names in a replay with these rules.
async fn replayed(rules: ResponseRules) -> BTreeSet<String> {
    let world = World::new();
    let handler = async || {
        let response =
            names().fold(Response::builder().header("etag", "1"), |response, name| response.header(name, "1"));
        response.body(Body::empty()).unwrap()
    };
    let shop = Shop::of(Router::new().route("/orders", post(handler)).layer(world.layer().response(rules)));
    let first = order_by("a").send(&shop).await;
    assert!(names().all(|name| first.headers.contains_key(name)), "the first caller receives all: {first:?}");
    let second = order_by("a").send(&shop).await;
    assert!(second.is_replay());
    second.headers.keys().map(ToString::to_string).filter(|name| name != "content-length").collect()
}

#[tokio::test]
async fn each_header_that_describes_the_first_exchange_is_left_out_and_can_be_kept() {
    let others = ["etag", "idempotent-replayed"].map(str::to_owned);
    assert_eq!(replayed(ResponseRules::default()).await, BTreeSet::from(others.clone()));
    let rules = names().fold(ResponseRules::default(), ResponseRules::keep);
    let all = names().map(|name| name.to_string()).chain(others).collect();
    assert_eq!(replayed(rules).await, all);
}

#[test]
fn the_guide_lists_the_headers_that_describe_the_first_exchange() {
    let guide = include_str!("../../../../../guides/http.md");
    let table = guide.split("### Headers of the first exchange").nth(1).unwrap().split("\n\n").nth(2).unwrap();
    let listed: BTreeSet<_> = table.split('`').skip(1).step_by(2).map(str::to_lowercase).collect();
    assert_eq!(listed, EXCHANGE_HEADERS.map(str::to_owned).into());
}
