//! The middleware in servers of actix-web, called over TCP.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
mod connections;
mod decisions;
mod disconnects;
mod handlers;
mod other_middleware;
mod positions;
mod shutdown;
mod support;
mod workers;
