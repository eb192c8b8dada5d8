//! On MariaDB.
mod backend;
#[path = "../common/mod.rs"]
mod common;
