//! On SQLite.
mod away;
#[path = "../laws/mod.rs"]
mod laws;
mod lost_keys;
mod own;
