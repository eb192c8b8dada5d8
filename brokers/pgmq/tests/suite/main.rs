//! Tests of the source and the publisher on a real PostgreSQL server with PGMQ.
#![allow(clippy::panic, clippy::print_stdout, clippy::unwrap_used, missing_docs)]
mod conformance;
mod holds;
mod outages;
mod pooler;
mod publisher;
mod queue_kinds;
mod redrive;
mod setup;
mod sizes;
mod transactions;
mod world;
