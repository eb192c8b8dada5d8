//! Tests of the source and the publisher on a broker that has the protocol of Kafka.
#![allow(clippy::panic, clippy::unwrap_used, missing_docs)]
mod aborted_transactions;
mod conformance;
mod local_tiers;
mod messages;
mod own_data;
mod publisher;
mod rebalances;
mod rejected_commits;
mod retries;
mod setup;
mod sizes;
#[cfg(feature = "tls")]
mod tls;
mod transactions;
mod world;
