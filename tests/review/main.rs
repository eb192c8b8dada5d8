//! What a hostile reader of the executor and the stores went for. Each test states what the docs promise; each was red
//! once.
#![allow(clippy::unwrap_used, clippy::panic, clippy::expect_used, missing_docs)]
#[path = "../common/bare.rs"]
mod bare;
#[path = "../common/mod.rs"]
mod common;

mod batches;
mod chaos;
mod clocks;
mod edges;
mod leases;
mod rules;
mod runtimes;
mod stores;
