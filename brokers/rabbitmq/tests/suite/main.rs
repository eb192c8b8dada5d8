//! Tests on a real RabbitMQ, which all of them share.
#![allow(clippy::panic, clippy::unwrap_used, unreachable_pub)]
mod broker;
mod conformance;
mod forwarder;
