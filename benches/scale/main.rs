//! The constants of `idempotent plan`, and the cost of packed markers: `cargo xtask bench scale`.
//!
//! The first part measures bytes and processor time of one key in Redis and in PostgreSQL. The second part measures a prototype of packed
//! markers: a consumed key is one member of a set of integers. No store uses this prototype. Rounds with the scripts of the store and with
//! those of the prototype alternate, so that a busy machine slows down both.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, missing_docs, unreachable_pub)]
#[path = "../sql/claims.rs"]
mod claims;
mod cycles;
#[path = "../core/keys.rs"]
mod keys;
mod memory;
#[path = "../sql/ours.rs"]
mod ours;
mod packed;
mod packed_memory;
mod pipeline;
mod purge_at_volume;
mod records;
#[path = "../core/report.rs"]
#[allow(dead_code, reason = "the core's benches use the rest of it")]
mod report;
mod routing;
mod sql;
mod traffic;

use crate::report::Report;

/// The name of the prototype in the figures.
pub const PACKED: &str = "packed prototype";
pub const REDIS: &str = "redis";

fn main() {
    let report = Report::from_args("scale");
    report.title();
    let is_full = std::env::args().any(|argument| argument == "--full");
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(memory::all(&report));
    runtime.block_on(routing::all(&report, is_full));
    cycles::all(&report, is_full, &runtime);
    traffic::all(&report, &runtime);
    runtime.block_on(sql::all(&report));
    runtime.block_on(purge_at_volume::all(&report, is_full));
    packed_memory::all(&report, is_full);
}
