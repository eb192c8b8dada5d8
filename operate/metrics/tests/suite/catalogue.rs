//! The catalogue agrees with what is recorded, with the rules and with the dashboard.
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use idempotent_core::{Call, OnBrokenOrder, Policy};
use idempotent_metrics::{ALERT_RULES, DASHBOARD, METRICS, MetricInfo, MetricKind};
use serde_json::Value;

use crate::world::{World, identity, runs};

fn catalogue() -> BTreeMap<&'static str, &'static MetricInfo> {
    METRICS.iter().map(|metric| (metric.name, metric)).collect()
}

/// Returns the metric of a series, and whether the series is a bucket of a histogram.
fn metric_of(series: &str) -> Option<(&'static MetricInfo, bool)> {
    let catalogue = catalogue();
    if let Some(metric) = catalogue.get(series).filter(|metric| !matches!(metric.kind, MetricKind::Histogram(_))) {
        return Some((metric, false));
    }
    let suffixes = ["_bucket", "_count", "_sum"].into_iter();
    let of = |suffix| Some((*catalogue.get(series.strip_suffix(suffix)?)?, suffix == "_bucket"));
    suffixes.filter_map(of).find(|(metric, _)| matches!(metric.kind, MetricKind::Histogram(_)))
}

#[test]
fn names_follow_the_conventions_of_prometheus() {
    assert_eq!(catalogue().len(), METRICS.len(), "a name occurs twice");
    for metric in METRICS {
        let MetricInfo { name, kind, unit, help, .. } = metric;
        assert!(name.starts_with("idempotent_") && help.ends_with('.'), "{metric:?}");
        assert_eq!(*kind == MetricKind::Counter, name.ends_with("_total"), "{metric:?}");
        let in_seconds = name.ends_with("_seconds");
        assert_eq!(in_seconds, *unit == Some(metrics::Unit::Seconds), "{metric:?}");
        let MetricKind::Histogram(bounds) = kind else { continue };
        assert!(bounds.windows(2).all(|pair| pair[0] < pair[1]), "{metric:?}");
    }
}

#[tokio::test]
async fn each_recorded_series_is_in_the_catalogue_with_its_labels() {
    let world = World::new();
    let patience = Duration::from_secs(60);
    let executor = world.executor(Policy::new().on_broken_order(OnBrokenOrder::Skip(patience)).max_result(1));
    world.collector().executor("orders", &executor).collect().await;
    runs(&executor, Call::new(identity("2")).after("1"), Ok(1)).await;
    world.clock.advance(patience).await;
    runs(&executor, Call::new(identity("2")).after("1"), Ok(100)).await;
    let scrape = world.scrape();
    assert!(scrape.len() > 50, "{scrape:?}");
    for series in scrape {
        let (metric, is_bucket) = metric_of(&series.name).unwrap_or_else(|| panic!("{} is unknown", series.name));
        let names: BTreeSet<_> = series.labels.iter().map(|label| label.split_once('=').unwrap().0).collect();
        let expected: BTreeSet<_> = metric.labels.iter().copied().chain(is_bucket.then_some("le")).collect();
        assert_eq!(names, expected, "{}", series.name);
    }
}

/// Returns each metric in a text, with the labels that the text selects.
fn selectors(text: &str) -> Vec<(String, Vec<String>)> {
    let mut found = Vec::new();
    for (at, _) in text.match_indices("idempotent_") {
        let rest = &text[at..];
        let end = rest.find(|char: char| !char.is_ascii_alphanumeric() && char != '_').unwrap_or(rest.len());
        let labels =
            rest[end..].strip_prefix('{').and_then(|rest| rest.split_once('}')).map_or("", |(labels, _)| labels);
        let labels = labels.split("\",").filter_map(|label| label.split(['=', '!']).next()).map(str::trim);
        found.push((rest[..end].to_owned(), labels.filter(|label| !label.is_empty()).map(str::to_owned).collect()));
    }
    found
}

/// Asserts that the text selects only metrics of the catalogue, by labels that they have.
fn assert_known(text: &str) {
    for (name, labels) in selectors(text) {
        let (metric, _) = metric_of(&name).unwrap_or_else(|| panic!("{name} is not in the catalogue: {text}"));
        for label in labels {
            let known = metric.labels.contains(&&*label) || ["job", "le"].contains(&&*label);
            assert!(known, "{name} has no label {label}: {text}");
        }
    }
}

#[test]
fn the_rules_use_only_metrics_of_the_catalogue() {
    assert!(selectors(ALERT_RULES).len() > 50);
    ALERT_RULES.lines().filter(|line| line.contains("idempotent_")).for_each(assert_known);
}

/// Returns the panels of the dashboard.
pub fn panels() -> Vec<Value> {
    let dashboard: Value = serde_json::from_str(DASHBOARD).unwrap();
    dashboard["panels"].as_array().unwrap().clone()
}

/// Returns the queries of the panels and of the variables.
pub fn queries() -> Vec<String> {
    let targets = panels().into_iter().flat_map(|panel| panel["targets"].as_array().cloned().unwrap_or_default());
    targets.map(|target| target["expr"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn the_dashboard_queries_only_metrics_of_the_catalogue_and_shows_each_of_them() {
    queries().iter().for_each(|query| assert_known(query));
    let dashboard: Value = serde_json::from_str(DASHBOARD).unwrap();
    for variable in dashboard["templating"]["list"].as_array().unwrap() {
        assert_known(variable["query"].as_str().unwrap());
    }
    let shown: BTreeSet<_> = queries().iter().flat_map(|query| selectors(query)).map(|(name, _)| name).collect();
    let shown: BTreeSet<_> = shown.iter().filter_map(|name| Some(metric_of(name)?.0.name)).collect();
    let all: BTreeSet<_> = METRICS.iter().map(|metric| metric.name).collect();
    assert_eq!(all.difference(&shown).collect::<Vec<_>>(), Vec::<&&str>::new(), "on no panel");
}

#[test]
fn each_panel_has_an_id_of_its_own_and_sums_outcomes() {
    let panels = panels();
    let ids: BTreeSet<_> = panels.iter().map(|panel| panel["id"].as_u64().unwrap()).collect();
    assert_eq!(ids.len(), panels.len());
    for query in queries().iter().filter(|query| query.contains("idempotent_deliveries_total")) {
        assert!(query.starts_with("sum"), "{query}");
    }
}
