//! The growth of the cost with the number of keys, messages and callers, and with the size of results: `cargo xtask bench growth`.
//!
//! Each figure is a time per operation. Its floor is the time of the same operation at the smallest size, measured in the same rounds, in
//! changing order. A cost is flat if no ratio exceeds 1.2. All sizes exist at the same time, so that their rounds can alternate.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, missing_docs, unreachable_pub)]
mod bare;
mod callers;
mod delay_queue;
#[path = "../core/floors.rs"]
mod floors;
#[path = "../core/keys.rs"]
#[allow(dead_code, reason = "the core's benches use the rest of it")]
mod keys;
mod keys_in_sql;
mod keys_in_stores;
mod outbox;
#[path = "../core/report.rs"]
#[allow(dead_code, reason = "the core's benches use the rest of it")]
mod report;
mod results;
mod runs;
mod sizes;

use crate::report::Report;

fn main() {
    let report = Report::from_args("growth");
    report.title();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        keys_in_stores::memory(&report).await;
        keys_in_stores::redis(&report).await;
        keys_in_sql::postgres(&report).await;
        keys_in_sql::mariadb(&report).await;
        keys_in_sql::sqlite(&report).await;
        delay_queue::waiting(&report).await;
        outbox::backlog(&report).await;
        callers::all(&report).await;
        results::all(&report).await;
    });
}
