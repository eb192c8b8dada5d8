//! Tests of the executor in rare situations: lost answers, drains, batches, late claims, blocked runtimes, and panics in rules.

mod batch_claims;
mod batch_completion;
mod batches;
mod chaos;
mod claim_interval;
mod clocks;
mod draining;
mod edges;
mod leases;
mod limits;
mod reports;
mod rules;
mod runtimes;
mod scripted;
mod state;
#[cfg(feature = "stores")]
mod stores;
mod transactional;
mod unprotected;
