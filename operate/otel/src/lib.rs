//! Traces of [`idempotent`](https://docs.rs/idempotent-rs) by the conventions of [OpenTelemetry](https://opentelemetry.io).
//!
//! A [`RunTracer`] adds the outcome of each run to its span, and links duplicates to the first run. With the feature `mq`, a
//! `ConsumerTracer` gives each delivery a span, whose parent is the span that created the message. A `ProducerTracer` writes the trace
//! context into messages, so that an outbox or a delay queue stores the context with the message.
//!
//! The spans are spans of [`tracing`], and the layer of [`tracing_opentelemetry`] exports them. This crate installs neither a
//! subscriber nor an exporter, and works without them. All spans have the target `idempotent`.
//!
//! No span contains a payload or a key in clear text. Ids of messages are opt-in, because an id may be a key.
//!
//! ```
//! use idempotent_core::{Executor, MemoryStore, Tracing};
//! use idempotent_otel::RunTracer;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let executor = Executor::builder(MemoryStore::new()).observer((Tracing, RunTracer::new())).build()?;
//! # drop(executor);
//! # Ok(())
//! # }
//! ```
#![cfg_attr(docsrs, feature(doc_cfg))]
mod attributes;
#[cfg(feature = "mq")]
mod consumer_tracer;
#[cfg(feature = "mq")]
mod producer_tracer;
mod recent_runs;
mod run_tracer;
#[cfg(feature = "mq")]
mod trace_context;
#[cfg(feature = "mq")]
mod traced_publisher;

pub use self::attributes::SEMCONV_VERSION;
#[cfg(feature = "mq")]
pub use self::consumer_tracer::ConsumerTracer;
#[cfg(feature = "mq")]
pub use self::producer_tracer::ProducerTracer;
pub use self::run_tracer::RunTracer;
#[cfg(feature = "mq")]
pub use self::traced_publisher::TracedPublisher;
