//! On PostgreSQL.
mod backend;
#[path = "../common/mod.rs"]
mod common;
