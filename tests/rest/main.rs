//! `examples/rest_axum.rs` as its clients meet it: a process, asked by programs that are not ours, `curl` and Python.
//!
//! `cargo xtask test extras` runs them against a release build; by hand, after `cargo build --release --example rest_axum`:
//! `IDEMPOTENT_EXAMPLES=target/release/examples cargo test --test rest`.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod client;
mod ends;
#[path = "../common/example.rs"]
mod example;
mod failures;
mod fleet;
mod keys;
mod options;
mod page;
mod python;
mod replays;
mod scenes;
mod service;
