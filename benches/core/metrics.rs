//! The cost of metrics with the recorder of Prometheus, added to a run over the memory store.
use std::sync::Arc;

use idempotent::metrics::{MetricsObserver, buckets};
use idempotent::{Executor, MemoryStore, Tracing};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};

use crate::memory::run;
use crate::report::{Goal, Report};
use crate::rounds::{drive, median};

/// The maximum cost in ns: 1 % of the fastest run on a durable store, which is SQLite with 64 tasks at once.
const MOST: f64 = 500.0;

pub async fn all(report: &Report) {
    if !report.wants("metrics", "added to a run") {
        return;
    }
    let (observer, scrapes) = observer();
    let with = Executor::builder(MemoryStore::new()).observer((Tracing, observer)).build().unwrap();
    let without = Executor::new(MemoryStore::new());
    let operation = |executor: &Executor| {
        let executor = executor.clone();
        Arc::new(move |number| {
            let executor = executor.clone();
            async move { run(&executor, number).await }
        })
    };
    let (with, without) = (operation(&with), operation(&without));
    let rounds = report.rounds(41, 20_000, 1);
    let mut added = Vec::new();
    for round in 0..rounds.rounds {
        let at = round * rounds.operations;
        let bare = drive(rounds.tasks, at, rounds.operations, &without).await;
        let measured = drive(rounds.tasks, at, rounds.operations, &with).await;
        added.push((measured.as_secs_f64() - bare.as_secs_f64()) * 1e9 / rounds.operations as f64);
        // A process is scraped, too: the recorder moves its samples into buckets.
        assert!(scrapes.render().contains("idempotent_deliveries_total"));
    }
    report.value(("metrics", "added to a run", Some(1)), "ns", median(added), Goal::AtMost(MOST));
}

fn observer() -> (MetricsObserver, PrometheusHandle) {
    let builder = buckets().fold(PrometheusBuilder::new(), |builder, (name, bounds)| {
        builder.set_buckets_for_metric(Matcher::Full(name.to_owned()), bounds).unwrap()
    });
    let recorder = builder.build_recorder();
    let handle = recorder.handle();
    (MetricsObserver::new().recorder(Arc::new(recorder)), handle)
}
