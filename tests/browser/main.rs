//! The page of `examples/rest_axum.rs` in a real Chromium that clicks twice, reloads and goes back.
//!
//! `cargo xtask test extras` runs it; `cargo xtask setup --browser` installs what it needs. By hand, after
//! `cargo build --example rest_axum`: `cargo test --test browser -- --ignored`.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod browser;
#[path = "../rest/client.rs"]
#[allow(dead_code, reason = "only a part of it is for a browser")]
mod client;
#[path = "../common/example.rs"]
mod example;
mod looks;
mod orders;
#[path = "../rest/service.rs"]
#[allow(dead_code, reason = "only a part of it is for a browser")]
mod service;
mod webdriver;
