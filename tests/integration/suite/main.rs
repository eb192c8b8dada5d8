//! Tests of annotated handlers and executors over every store, in one binary: it is linked once, and what is generic is
//! compiled once.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, missing_docs)]
// Parts that only tests on other stores use.
#![cfg_attr(not(feature = "stores"), allow(dead_code, unused_imports))]
#[macro_use]
mod common;
#[cfg(feature = "stores")]
mod servers;

mod attribute;
mod behaviour;
mod cas;
mod conformance;
#[cfg(feature = "stores")]
mod connect;
#[cfg(feature = "stores")]
mod crash;
#[cfg(feature = "stores")]
mod damage;
mod executor;
#[cfg(feature = "stores")]
mod http_guide;
#[cfg(feature = "stores")]
mod invariants;
mod key_states;
mod keys;
mod memory;
mod observe;
mod order;
mod panics;
mod policy;
#[cfg(feature = "stores")]
mod races;
mod records;
mod runtimes;
mod steps;
#[cfg(feature = "stores")]
mod subscriber;
mod testing;
mod tiered;
mod tokens;
#[cfg(feature = "stores")]
mod transaction;
mod windows;
mod without_capabilities;
