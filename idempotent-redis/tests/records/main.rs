//! What lies under a key: what the scripts write, byte for byte, and what is refused and left as it is.
#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]
mod damaged;
mod forms;
#[path = "../support/mod.rs"]
mod support;
