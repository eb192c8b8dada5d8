//! The cost of a run over Redis compared with the bare commands: `cargo xtask bench redis`.
//!
//! Each figure has a floor: the same effect without protection, on the same private server, measured in the same run,
//! in alternating order, so that a busy machine slows down both. Ratios are medians of the ratios of consecutive
//! slices.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, missing_docs, unreachable_pub)]
mod bare;
mod calls;
mod cluster;
mod consumer;
mod cpu;
mod duplicates;
mod fresh;
#[path = "../core/keys.rs"]
mod keys;
mod memory;
mod ours;
mod raw;
mod renewals;
#[path = "../core/report.rs"]
#[allow(dead_code, reason = "the core's benches use the rest of it")]
mod report;
mod slices;

use std::sync::{Arc, OnceLock};

use idempotent_harness::servers::RedisServer;

use crate::report::{Goal, Report};

/// The numbers of concurrent tasks: one consumer, a prefetch, the share of a fleet, and more than most services have.
pub const CONCURRENCIES: [usize; 4] = [1, 16, 64, 256];

/// Returns the name of the server in the figures: its product and version if the variable of the tests names it.
pub fn server_name() -> &'static str {
    static NAME: OnceLock<&str> = OnceLock::new();
    NAME.get_or_init(|| std::env::var("IDEMPOTENT_REDIS_VERSION").map_or("redis", |name| name.leak()))
}

/// Returns whether the server has `SET … IFEQ`.
pub fn has_comparisons() -> bool {
    server_name().starts_with("valkey")
}

/// Returns the goal for servers without `SET … IFEQ`, or the one for servers with this option.
pub fn goal(of_scripts: f64, of_comparisons: f64) -> Goal {
    Goal::AtLeast(if has_comparisons() { of_comparisons } else { of_scripts })
}

fn main() {
    let report = Report::from_args("redis");
    report.title();
    // Memory is freed at once; otherwise it would be counted in the next measurement.
    let lazy = ["--lazyfree-lazy-user-flush", "no", "--lazyfree-lazy-user-del", "no"];
    let server = Arc::new(RedisServer::builder().args(lazy).start());
    let runtime = cpu::runtime(2);
    runtime.block_on(async {
        calls::all(&report, &server).await;
        memory::all(&report, &server).await;
        renewals::all(&report, &server).await;
        duplicates::all(&report, &server).await;
        fresh::all(&report, &server).await;
        consumer::all(&report, &server, "consumer", &[1, 16, 64], &[0.9, 0.6, 0.65]).await;
        cluster::all(&report, &server).await;
    });
    cpu::runtime(1).block_on(consumer::all(&report, &server, "consumer on one thread", &[1], &[1.2]));
}
