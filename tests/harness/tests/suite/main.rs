//! Tests of the servers and of the proxy.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, unreachable_pub)]
mod servers;
