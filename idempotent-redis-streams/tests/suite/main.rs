//! Tests on a real Redis.
#![allow(clippy::panic, clippy::unwrap_used, missing_docs)]
mod broker;
mod conformance;
