//! On SQLite.
mod attempts;
#[path = "../laws.rs"]
#[allow(clippy::duplicate_mod, reason = "the same laws for each database")]
mod laws;
mod own;
#[path = "../steps.rs"]
#[allow(clippy::duplicate_mod, reason = "the same laws for each database")]
mod steps;
mod unsure;
mod world;
