//! Tests of annotated handlers and executors over every store, in one binary: it is linked once, and what is generic is
//! compiled once.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, missing_docs)]
#[macro_use]
mod common;
#[macro_use]
mod servers;

mod attribute;
mod behaviour;
mod cas;
mod conformance;
mod connect;
mod crash;
mod damage;
mod executor;
mod http_guide;
mod invariants;
mod keys;
mod observe;
mod order;
mod orphans;
mod policy;
mod races;
mod records;
mod runtimes;
mod steps;
mod subscriber;
mod testing;
mod tiered;
mod tokens;
mod transaction;
mod versioned;
mod windows;
mod without_capabilities;
