//! On SQLite.
mod attempts;
#[path = "../laws.rs"]
mod laws;
mod own;
#[path = "../steps.rs"]
mod steps;
mod unsure;
mod world;
