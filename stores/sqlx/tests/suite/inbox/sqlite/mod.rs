//! On SQLite.
mod attempts;
mod backend;
#[path = "../common.rs"]
mod common;
#[path = "../ended.rs"]
mod ended;
#[path = "../fenced.rs"]
mod fenced;
#[path = "../killed.rs"]
mod killed;
#[path = "../steps.rs"]
mod steps;
mod unknown_outcomes;
mod world;
