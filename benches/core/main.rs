//! The cost of a run compared with the bare work: `cargo xtask bench core`.
//!
//! Each figure has a floor: the same effect without the library and without protection, measured in the same run, in
//! alternating order, so that a busy machine slows down both. Ratios are medians over the rounds.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout, missing_docs, unreachable_pub)]
mod floors;
mod heartbeat;
mod keys;
mod memory;
mod metrics;
mod report;
mod sizes;
mod sqlite;
mod stalls;

use crate::report::Report;

fn main() {
    let report = Report::from_args("core");
    report.title();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        sizes::all(&report).await;
        memory::all(&report).await;
        metrics::all(&report).await;
        stalls::all(&report).await;
        heartbeat::all(&report).await;
        sqlite::all(&report).await;
    });
}
