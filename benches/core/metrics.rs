//! The cost of metrics with the recorder of Prometheus: the time that they add to a run over the memory store, compared
//! with the shortest run over a durable store, which is one over SQLite with 64 tasks.
use std::sync::Arc;

use idempotent::metrics::{MetricsObserver, buckets};
use idempotent::{Executor, MemoryStore, Tracing};
use idempotent_sqlx::SqliteStore;
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};

use crate::memory::run;
use crate::report::{Goal, Pair, Report, drive, median, nanos};

/// The number of tasks over SQLite, and the number of runs in a round. A commit there covers many tasks.
const TASKS: u64 = 64;
const DURABLE_RUNS: u64 = 256;

pub async fn all(report: &Report) {
    if !report.wants("metrics", "added to a run, to a run on SQLite") {
        return;
    }
    let (observer, scrapes) = observer();
    let with = Executor::builder(MemoryStore::new()).observer((Tracing, observer)).build().unwrap();
    let without = Executor::new(MemoryStore::new());
    let operation = |executor: &Executor| {
        let executor = executor.clone();
        Arc::new(move |number| run(executor.clone(), number))
    };
    let folder = tempfile::tempdir().unwrap();
    let durable = SqliteStore::open(folder.path().join("runs.db").to_str().unwrap()).await.unwrap();
    let (with, without, durable) = (operation(&with), operation(&without), operation(&Executor::new(durable)));
    let rounds = report.rounds(41, 20_000, 1);
    let (mut added, mut durable_runs) = (Vec::new(), Vec::new());
    for round in 0..rounds.rounds {
        let at = round * rounds.operations;
        let bare = drive(rounds.tasks, at, rounds.operations, &without).await;
        let measured = drive(rounds.tasks, at, rounds.operations, &with).await;
        added.push((measured.as_secs_f64() - bare.as_secs_f64()) * 1e9 / rounds.operations as f64);
        durable_runs.push(nanos(drive(TASKS, round * DURABLE_RUNS, DURABLE_RUNS, &durable).await, DURABLE_RUNS));
        // A process is scraped, too: the recorder moves its samples into buckets.
        assert!(scrapes.render().contains("idempotent_deliveries_total"));
    }
    let (value, floor) = (median(added), median(durable_runs));
    let pair = Pair { value, floor, ratio: value / floor };
    report.pair(("metrics", "added to a run, to a run on SQLite", Some(1)), "ns", pair, Goal::AtMost(0.01));
}

fn observer() -> (MetricsObserver, PrometheusHandle) {
    let builder = buckets().fold(PrometheusBuilder::new(), |builder, (name, bounds)| {
        builder.set_buckets_for_metric(Matcher::Full(name.to_owned()), bounds).unwrap()
    });
    let recorder = builder.build_recorder();
    let handle = recorder.handle();
    (MetricsObserver::new().recorder(Arc::new(recorder)), handle)
}
