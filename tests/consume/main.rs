//! The main job, `examples/consume.rs`, as its users meet it: a process with files.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod crash;
#[path = "../common/example.rs"]
mod example;
mod fleet;
mod job;
mod malformed;
mod options;
mod queues;
mod redis;
mod shared;
mod sources;
mod sql;
mod support;
mod transactional;
