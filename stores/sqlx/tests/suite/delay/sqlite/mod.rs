//! On SQLite.
#[path = "../laws/mod.rs"]
mod laws;
mod own;
