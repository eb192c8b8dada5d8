//! Spans of the SDK of OpenTelemetry, from runs, consumers, publishers and real servers.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs, unreachable_pub)]
mod consumer;
mod conventions;
mod filters;
mod malformed;
mod outbox;
mod redis;
mod rest;
mod runs;
mod world;
