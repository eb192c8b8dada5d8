//! On PostgreSQL.
#[path = "../laws/mod.rs"]
mod laws;
mod own;
