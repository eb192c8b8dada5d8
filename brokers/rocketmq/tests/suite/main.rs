//! Tests of the adapter on private RocketMQ servers.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]
#![recursion_limit = "512"]
mod broker;
mod conformance;
mod plain_client;
mod raw_message;
