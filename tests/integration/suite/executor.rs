//! Tests of the executor in rare situations: lost answers, drains, batches, late claims, blocked runtimes, and panics in rules.

mod batches;
mod chaos;
mod clocks;
mod edges;
mod leases;
mod rules;
mod runtimes;
mod state;
#[cfg(feature = "stores")]
mod stores;
