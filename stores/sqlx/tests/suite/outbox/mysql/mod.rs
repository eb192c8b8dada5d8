//! On MariaDB.
#[path = "../server/away.rs"]
mod away;
#[path = "../laws/mod.rs"]
mod laws;
mod own;
