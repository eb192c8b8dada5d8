//! The observer that records the events of runs.
use std::sync::Arc;

use idempotent_core::{Event, Observer, RunInfo, Scene};
use metrics::Recorder;

use crate::recording::Recording;
use crate::scopes::ScopeTable;
use crate::store_metrics::StoreMetrics;

/// An observer that records metrics of runs, of store calls, and of a consumer's deliveries.
///
/// Set the observer at the executor, and a clone at each consumer for the ages of its messages. Clones share their metrics.
/// Use one observer for each store.
///
/// The metrics go to the recorder that the process has installed when a scope has its first run, so install the recorder
/// before. Without a recorder, the metrics are lost.
///
/// A call without an executor has no observer, and no metric.
///
/// ```
/// use idempotent_core::{Executor, MemoryStore, Tracing};
/// use idempotent_metrics::MetricsObserver;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let metrics = MetricsObserver::new().store("orders");
/// let executor = Executor::builder(MemoryStore::new()).observer((Tracing, metrics)).build()?;
/// # drop(executor);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct MetricsObserver {
    recording: Recording,
    store: Arc<str>,
    max_scopes: usize,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    scopes: ScopeTable,
    store: StoreMetrics,
    #[cfg(feature = "mq")]
    consumers: crate::delivery_ages::DeliveryAges,
}

impl Default for MetricsObserver {
    fn default() -> Self {
        Self { recording: Recording::default(), store: "default".into(), max_scopes: 100, shared: Arc::default() }
    }
}

impl MetricsObserver {
    /// Returns an observer that records to the recorder of the process.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the name of the store in the label `store`.
    ///
    /// # Default
    /// `default`
    #[must_use]
    pub fn store(mut self, name: impl Into<Arc<str>>) -> Self {
        self.store = name.into();
        self.shared = Arc::default();
        self
    }

    /// Sets the maximum number of scopes with metrics of their own. Further scopes count as `other`, with one warning.
    ///
    /// # Default
    /// 100
    #[must_use]
    pub fn max_scopes(mut self, scopes: usize) -> Self {
        self.max_scopes = scopes;
        self.shared = Arc::default();
        self
    }

    /// Sets the recorder.
    ///
    /// # Default
    /// The recorder of the process
    #[must_use]
    pub fn recorder(mut self, recorder: Arc<dyn Recorder + Send + Sync>) -> Self {
        self.recording = Recording::by(recorder);
        self.shared = Arc::default();
        self
    }

    /// Creates the metrics of a scope before its first run, so that they start at 0.
    pub fn prepare(&self, scene: &Scene, scope: &str) {
        self.shared.scopes.with(&self.recording, self.max_scopes, (scene, scope), |_| {});
    }
}

impl Observer for MetricsObserver {
    fn on(&self, run: &RunInfo<'_>, event: &Event<'_>) {
        let store = (&self.recording, &*self.store);
        match event {
            Event::StoreAnswered { step, error, elapsed } => self.shared.store.answered(store, step, *error, *elapsed),
            Event::StoreFailed { step, error } => StoreMetrics::failed(store, step, error.kind()),
            Event::Claimed { taken_over: None } => {}
            _ => {
                let scope = (run.scene, run.scope);
                self.shared.scopes.with(&self.recording, self.max_scopes, scope, |metrics| metrics.on(run, event));
            }
        }
    }

    fn wants_timing(&self) -> bool {
        true
    }
}

#[cfg(feature = "mq")]
impl idempotent_mq::DeliveryObserver for MetricsObserver {
    fn settled(&self, delivery: &idempotent_mq::SettledDelivery<'_>) {
        if delivery.is_final {
            self.shared.consumers.record(&self.recording, self.max_scopes, delivery.group, delivery.age);
        }
    }
}
