//! Metrics from their sources to Prometheus, its rules and the dashboard.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs, unreachable_pub)]
mod catalogue;
mod collector;
mod events;
mod prometheus;
mod reference;
mod runbooks;
mod runs;
mod scopes;
mod sources;
mod world;
