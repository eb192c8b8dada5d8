//! The limit of scopes.
use std::collections::BTreeSet;

use idempotent_core::{Call, Identity, Policy, Scene};

use crate::world::{World, runs};

#[tokio::test]
async fn many_scopes_have_at_most_one_value_more_than_the_limit() {
    let world = World::new();
    let executor = world.executor(Policy::new());
    for scope in 0..2_000 {
        runs(&executor, Call::new(Identity::new(Scene::Mq, format!("scope-{scope}"), "1")), Ok(1)).await;
    }
    let scopes: BTreeSet<_> = world
        .scrape()
        .into_iter()
        .flat_map(|series| series.labels)
        .filter(|label| label.starts_with("scope="))
        .collect();
    assert_eq!(scopes.len(), 101);
    assert_eq!(world.value("idempotent_deliveries_total", &["scope=\"other\"", "outcome=\"ran\""]), Some(1_900.0));
}

#[tokio::test]
async fn scopes_over_the_limit_are_logged_once() {
    let world = World::new();
    let log = idempotent_harness::LogLines::default();
    let _logging = idempotent_harness::logs_to(log.clone());
    let observer = world.observer().max_scopes(1);
    ["first", "second", "third"].iter().for_each(|scope| observer.prepare(&Scene::Mq, scope));
    let log = log.text();
    assert_eq!(log.matches("too many scopes for metrics").count(), 1, "{log}");
    assert!(log.contains("second"), "{log}");
    let scopes =
        ["first", "other"].map(|scope| world.value("idempotent_takeovers_total", &[&format!("scope=\"{scope}\"")]));
    assert_eq!(scopes, [Some(0.0); 2], "the other settings of the observer are kept");
}

#[tokio::test]
async fn a_prepared_scope_has_its_series_before_its_first_run() {
    let world = World::new();
    world.observer().prepare(&Scene::Rest, "pay");
    let dead = world.value("idempotent_deliveries_total", &["scene=\"rest\"", "scope=\"pay\"", "outcome=\"dead\""]);
    assert_eq!(dead, Some(0.0));
}
