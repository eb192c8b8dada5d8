//! On SQLite.
mod attempts;
#[path = "../fenced.rs"]
mod fenced;
#[path = "../killed.rs"]
mod killed;
#[path = "../laws.rs"]
mod laws;
mod own;
#[path = "../steps.rs"]
mod steps;
mod unsure;
mod world;
