//! The collector, which reads counts and sizes at an interval.
#[cfg(feature = "mq")]
mod consumer;
#[cfg(any(
    feature = "delay-queue",
    all(feature = "delay", any(feature = "mysql", feature = "postgres", feature = "sqlite"))
))]
mod delay;
mod executor;
#[cfg(all(feature = "outbox", any(feature = "mysql", feature = "postgres", feature = "sqlite")))]
mod outbox;
mod source;
mod stores;

use std::fmt;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{Either, join_all, select};
use idempotent_core::{Clock, SystemClock};
use metrics::Recorder;

use self::source::Source;
use crate::catalogue;
use crate::recording::Recording;

/// A collector of counts and sizes, for components that report no events.
///
/// Each method adds a source under a name, which becomes a label. [`run`](Self::run) reads all sources at an interval. If a source
/// fails, its gauges become NaN, so that they show no stale value, and `idempotent_collector_errors_total` counts the failure.
#[must_use]
pub struct MetricsCollector {
    recording: Recording,
    clock: Arc<dyn Clock>,
    sources: Vec<Box<dyn Source>>,
}

/// The maximum time for which a source is read.
const PATIENCE: Duration = Duration::from_secs(10);

impl Default for MetricsCollector {
    fn default() -> Self {
        Self { recording: Recording::default(), clock: Arc::new(SystemClock::new()), sources: Vec::new() }
    }
}

impl MetricsCollector {
    /// Returns a collector without sources, which records to the recorder of the process.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the recorder for the sources that are added afterwards.
    ///
    /// # Default
    /// The recorder of the process
    pub fn recorder(mut self, recorder: Arc<dyn Recorder + Send + Sync>) -> Self {
        self.recording = Recording::by(recorder);
        self
    }

    /// Sets the clock of the interval.
    ///
    /// # Default
    /// [`SystemClock`]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Reads all sources at once, then every `interval`, until `stop` ends. A reading that takes longer than the interval delays
    /// the next one.
    ///
    /// # Panics
    /// Panics outside of a tokio runtime, with the default clock.
    ///
    /// # Cancellation
    /// The metrics keep their last values.
    pub async fn run(mut self, interval: Duration, stop: impl Future<Output = ()>) {
        let mut stop = pin!(stop);
        loop {
            let clock = self.clock.clone();
            let next = clock.now() + interval;
            self.collect().await;
            if let Either::Right(_) = select(clock.sleep_until(next), &mut stop).await {
                // The last counts, after the components have drained.
                return self.collect().await;
            }
        }
    }

    /// Reads all sources once.
    ///
    /// # Cancellation
    /// Some sources are not read.
    pub async fn collect(&mut self) {
        self.recording.gauge(&catalogue::BUILD_INFO, &[env!("CARGO_PKG_VERSION")]).set(1);
        let (clock, recording) = (&self.clock, &self.recording);
        let reads = self.sources.iter_mut().map(|source| async move {
            let deadline = clock.sleep_until(clock.now() + PATIENCE);
            let is_read = match select(source.read(recording), deadline).await {
                Either::Left((is_read, _)) => is_read,
                Either::Right(_) => false,
            };
            if !is_read {
                source.set_unknown(recording);
                recording.counter(&catalogue::COLLECTOR_ERRORS, &[&source.name()]).increment(1);
            }
        });
        join_all(reads).await;
    }

    fn add(mut self, source: impl Source + 'static) -> Self {
        self.sources.push(Box::new(source));
        self
    }
}

impl fmt::Debug for MetricsCollector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.sources.iter().map(|source| source.name()).collect();
        f.debug_struct("MetricsCollector").field("sources", &names).finish_non_exhaustive()
    }
}
