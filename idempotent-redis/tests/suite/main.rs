//! Tests against real servers, one module per subject, in one binary, so that linking and generic code cost only once.
#![allow(clippy::expect_used, clippy::panic, clippy::print_stdout, clippy::unwrap_used, missing_docs)]
#[macro_use]
mod delay_queue;

mod batching;
mod cache;
mod conformance;
mod executor;
mod faults;
mod listing;
mod mutants;
mod records;
mod startup;
mod support;
mod tiered_store;
mod topology;
mod watch;
