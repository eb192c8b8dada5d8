//! Tests of the source and the publisher on a real Redis server.
#![allow(clippy::panic, clippy::unwrap_used, missing_docs)]
mod conformance;
mod consumer;
mod dead_letters;
mod lost_connections;
mod ownership;
mod permissions;
mod publisher;
mod redrive;
mod settlement;
mod setup;
mod world;
