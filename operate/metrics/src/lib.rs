//! Metrics of [`idempotent`](https://docs.rs/idempotent-rs) by the facade [`metrics`](https://docs.rs/metrics), under names and units
//! that suit Prometheus and OpenTelemetry.
//!
//! A [`MetricsObserver`] records the events of runs, store calls and deliveries. A [`MetricsCollector`] reads counts and sizes at an
//! interval: of executors, and by feature of consumers, relays, outboxes, delay queues, dead letters and stores. [`METRICS`] lists
//! everything that they record. This crate installs no recorder; choose an exporter of the facade, such as
//! `metrics-exporter-prometheus`.
//!
//! No label contains a key, a tenant, a message id, a fencing token or a part of a payload. The number of scopes is
//! [limited](MetricsObserver::max_scopes).
//!
//! ```
//! use std::time::Duration;
//!
//! use idempotent_core::{Executor, MemoryStore, Tracing};
//! use idempotent_metrics::{MetricsCollector, MetricsObserver};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let metrics = MetricsObserver::new().store("orders");
//! let executor = Executor::builder(MemoryStore::new()).observer((Tracing, metrics)).build()?;
//! let collector = MetricsCollector::new().executor("orders", &executor);
//! # let stop = std::future::ready(());
//! collector.run(Duration::from_secs(10), stop).await;
//! # Ok(())
//! # }
//! ```
#![cfg_attr(docsrs, feature(doc_cfg))]
mod catalogue;
mod collector;
#[cfg(feature = "mq")]
mod delivery_ages;
mod observer;
mod recording;
mod scope_metrics;
mod scopes;
mod store_metrics;

pub use self::catalogue::{METRICS, MetricInfo, MetricKind, buckets};
pub use self::collector::MetricsCollector;
pub use self::observer::MetricsObserver;

/// The rules for Prometheus, as the file `alerts.yaml` of this package.
pub const ALERT_RULES: &str = include_str!("../alerts.yaml");

/// The dashboard for Grafana, as the file `dashboard.json` of this package.
pub const DASHBOARD: &str = include_str!("../dashboard.json");
