//! On SQLite.
mod backend;
#[path = "../common/mod.rs"]
mod common;
