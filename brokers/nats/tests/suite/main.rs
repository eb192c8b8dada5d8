//! Tests of the source and the publisher on a real NATS server.
#![allow(clippy::panic, clippy::unwrap_used, missing_docs)]
mod cluster;
mod conformance;
mod delayed;
mod kv;
mod outages;
mod outbox;
mod publisher;
mod redrive;
mod security;
mod setup;
mod sizes;
mod unreadable;
mod world;
