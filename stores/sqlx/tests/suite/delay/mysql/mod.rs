//! On MariaDB.
#[path = "../laws/mod.rs"]
mod laws;
mod own;
