//! `apps/shop` as its clients meet it: a process, asked by programs that are not ours, `curl` and Python.
//!
//! `cargo xtask soak released` runs them against a release build.

pub(crate) mod client;
mod failures;
mod fleet;
mod keys;
mod options;
mod page;
mod python;
mod replays;
mod scenes;
pub(crate) mod service;
mod shutdown;
