//! On PostgreSQL.
mod backend;
#[path = "../common/mod.rs"]
mod common;
#[path = "../server/outages.rs"]
mod cut_off;
mod locks;
mod outages;
