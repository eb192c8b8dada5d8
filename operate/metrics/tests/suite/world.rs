//! A recorder whose metrics are read as Prometheus scrapes them, and an executor on a virtual clock.
use std::sync::Arc;

use idempotent_core::{
    Call, DefaultReply, Executor, Handler, Identity, Json, MemoryStore, Observer, Outcome, Policy, Rejection, Scene,
    Tracing,
};
use idempotent_metrics::{MetricsCollector, MetricsObserver, buckets};
use idempotent_testkit::{FaultStore, VirtualClock};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle, PrometheusRecorder};

pub struct World {
    pub clock: VirtualClock,
    pub store: FaultStore,
    pub recorder: Arc<PrometheusRecorder>,
    pub handle: PrometheusHandle,
}

/// A series of a scrape: its name, its labels as `name="value"`, and its value.
#[derive(Debug)]
pub struct Series {
    pub name: String,
    pub labels: Vec<String>,
    pub value: f64,
}

impl World {
    pub fn new() -> Self {
        let clock = VirtualClock::new();
        let store = FaultStore::new(MemoryStore::builder().clock(Arc::new(clock.clone())).build(), &clock);
        let builder = buckets().fold(PrometheusBuilder::new(), |builder, (name, bounds)| {
            builder.set_buckets_for_metric(Matcher::Full(name.to_owned()), bounds).unwrap()
        });
        let recorder = builder.build_recorder();
        Self { clock, store, handle: recorder.handle(), recorder: Arc::new(recorder) }
    }

    pub fn observer(&self) -> MetricsObserver {
        MetricsObserver::new().recorder(self.recorder.clone()).store("memory")
    }

    pub fn collector(&self) -> MetricsCollector {
        MetricsCollector::new().recorder(self.recorder.clone()).clock(Arc::new(self.clock.clone()))
    }

    pub fn executor(&self, policy: Policy) -> Executor {
        self.executor_with(policy, self.observer())
    }

    pub fn executor_with(&self, policy: Policy, observer: impl Observer) -> Executor {
        let builder = Executor::builder(self.store.clone()).clock(Arc::new(self.clock.clone()));
        builder.policy(Scene::Mq, policy).observer((Tracing, observer)).build().unwrap()
    }

    /// Returns the series of a scrape.
    pub fn scrape(&self) -> Vec<Series> {
        parsed(&self.handle.render())
    }

    /// Returns the sum of the series with this name and these labels, or `None` if none exists.
    pub fn value(&self, name: &str, labels: &[&str]) -> Option<f64> {
        let scrape = self.scrape();
        let fits = |series: &&Series| {
            series.name == name && labels.iter().all(|label| series.labels.iter().any(|own| own == label))
        };
        let found: Vec<_> = scrape.iter().filter(fits).map(|series| series.value).collect();
        (!found.is_empty()).then(|| found.iter().sum())
    }
}

/// Parses the text of a scrape. No label of these tests contains a comma.
pub fn parsed(text: &str) -> Vec<Series> {
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let series = lines.map(|line| {
        let (key, value) = line.rsplit_once(' ').unwrap();
        let (name, labels) = key.split_once('{').unwrap_or((key, ""));
        let labels = labels.trim_end_matches('}').split(',').filter(|label| !label.is_empty());
        Series { name: name.to_owned(), labels: labels.map(str::to_owned).collect(), value: value.parse().unwrap() }
    });
    series.collect()
}

pub fn identity(key: &str) -> Identity {
    Identity::new(Scene::Mq, "orders", key)
}

/// Runs a handler with this answer, and returns the outcome.
pub async fn runs(executor: &Executor, call: Call, answer: Result<u32, Rejection>) -> Outcome {
    let handler = Handler::<DefaultReply, Json, _, _>::new(|| async { answer });
    Outcome::capture(executor.run(call, handler)).await.1.unwrap()
}
