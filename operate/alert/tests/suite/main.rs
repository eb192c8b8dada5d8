//! Alerts from their sources to their senders.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs, unreachable_pub)]
mod email;
mod sending;
mod smtp_sink;
mod sources;
mod world;
