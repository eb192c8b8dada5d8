//! Observers of runs, and counters.
pub use idempotent_core::{Event, ExecutorCounts, Observer, RunInfo, Tracing};
