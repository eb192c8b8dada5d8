//! Connections, memory, processes and clocks that fail under runs on a real server.
#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]
mod clock;
mod memory;
mod paused;
mod replies;
mod restart;
mod silence;
#[path = "../support/mod.rs"]
mod support;
