//! What a run over Redis costs beside the bare commands: `cargo xtask bench redis`.
//!
//! Each figure stands beside a floor: the same effect by hand, without any protection, on the same private server, in
//! the same run and in turns with it, so that a noisy machine slows both. Ratios are medians of the ratios of slices
//! that were taken right after each other.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, missing_docs, unreachable_pub)]
mod bare;
mod calls;
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
#[path = "../core/rounds.rs"]
#[allow(dead_code, reason = "the core's benches use the rest of it")]
mod rounds;
mod slices;

use std::sync::Arc;
use std::time::Duration;

use idempotent_testkit::servers::RedisServer;

use crate::report::Report;

/// At once: one consumer, a prefetch, a fleet's share, more than anybody waits for.
pub const CONCURRENCIES: [usize; 4] = [1, 16, 64, 256];

fn main() {
    let report = Report::from_args("redis");
    report.title();
    // What is freed is free at once, or it would be counted with what comes next.
    let lazy = ["--lazyfree-lazy-user-flush", "no", "--lazyfree-lazy-user-del", "no"];
    let server = Arc::new(RedisServer::builder().args(lazy).start());
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        // A thread that ends takes its processor time with it.
        .thread_keep_alive(Duration::from_secs(3_600))
        .build()
        .unwrap();
    runtime.block_on(async {
        calls::all(&report, &server).await;
        memory::all(&report, &server).await;
        renewals::all(&report, &server).await;
        duplicates::all(&report, &server).await;
        fresh::all(&report, &server).await;
    });
}
