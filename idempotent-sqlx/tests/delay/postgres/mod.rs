//! On PostgreSQL.
#[path = "../laws/mod.rs"]
#[allow(clippy::duplicate_mod, reason = "the same for each database")]
mod laws;
mod own;
