//! On PostgreSQL.
mod away;
#[path = "../server/away.rs"]
mod cut_off;
#[path = "../laws/mod.rs"]
mod laws;
mod locks;
mod own;
