//! On PostgreSQL.
mod away;
#[path = "../laws/mod.rs"]
mod laws;
mod locks;
mod own;
