//! On MariaDB.
mod away;
#[path = "../laws/mod.rs"]
mod laws;
mod own;
