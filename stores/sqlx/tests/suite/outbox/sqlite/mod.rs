//! On SQLite.
mod backend;
#[path = "../common/mod.rs"]
mod common;
mod lost_keys;
mod outages;
