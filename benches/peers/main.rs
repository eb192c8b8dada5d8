//! The cost of a run compared with other libraries, on the same Redis: `cargo xtask bench peers`.
//!
//! All of them run the same empty handler with the same keys on the same private server, in alternating slices of the
//! same run, so that a busy machine slows down all. Ratios are medians of the ratios within a round. A peer runs in a
//! process of its own: a library in another language has to, and `idempotent` 2 names a later Rust version than the
//! workspace.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, missing_docs, unreachable_pub)]
#[path = "../redis/bare.rs"]
#[allow(dead_code, reason = "the bench of Redis uses the rest of it")]
mod bare;
mod by_hand;
#[path = "../redis/cpu.rs"]
mod cpu;
mod duplicates;
mod fresh;
mod http;
#[path = "../core/keys.rs"]
mod keys;
#[path = "../redis/ours.rs"]
#[allow(dead_code, reason = "the bench of Redis uses the rest of it")]
mod ours;
mod peer;
#[path = "../core/report.rs"]
#[allow(dead_code, reason = "other benches use the rest of it")]
mod report;
#[path = "rust/request.rs"]
mod request;
#[path = "../redis/slices.rs"]
#[allow(dead_code, reason = "the bench of Redis uses the rest of it")]
mod slices;

use idempotent_harness::servers::RedisServer;

use crate::peer::{EXECUTORS, Kind, Peer};
use crate::report::Report;

/// The numbers of concurrent callers, as in the bench of Redis.
pub const CONCURRENCIES: [usize; 4] = [1, 16, 64, 256];

/// The number of keys of duplicates: a prime, so that callers whose starts are thousands apart use different keys.
pub const KEYS: u64 = 20_011;

fn main() {
    let report = Report::from_args("peers");
    report.title();
    // Memory is freed at once; otherwise the next slice would pay for it.
    let server = RedisServer::builder().args(["--lazyfree-lazy-user-flush", "no"]).start();
    let runtime = cpu::runtime(2);
    let peers = EXECUTORS.map(|kind| Peer::start(kind, &server));
    let layer = Peer::start(Kind::AxumIdempotent, &server);
    runtime.block_on(async {
        fresh::all(&report, &server, &peers).await;
        duplicates::all(&report, &server, &peers).await;
        http::all(&report, &server, &layer).await;
    });
}
