//! On MariaDB.
mod backend;
#[path = "../common/mod.rs"]
mod common;
#[path = "../server/outages.rs"]
mod outages;
