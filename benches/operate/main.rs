//! The cost of an operator's listings and counts: `cargo xtask bench operate`.
//!
//! A private server holds consumed records, and ten dead ones among them. The bench measures the longest time for which one command or
//! statement of a listing keeps the server busy, the records that are examined per second, the p99 of claims during a
//! listing, and the time of the pages of the console. Rounds with and without the listing alternate, so that a busy machine slows down both.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, missing_docs, unreachable_pub)]
#[path = "../sql/claims.rs"]
mod claims;
mod console;
#[path = "../core/keys.rs"]
mod keys;
mod listing;
mod postgres;
mod redis;
mod relay;
#[path = "../core/report.rs"]
#[allow(dead_code, reason = "the core's benches use the rest of it")]
mod report;

use std::sync::Arc;

use idempotent::Store;

use crate::relay::Relay;
use crate::report::Report;

/// Dead records among the consumed ones.
pub const DEAD: u64 = 10;

/// A store with records, and its server.
pub trait Side: Send + Sync {
    fn name(&self) -> &'static str;
    fn store(&self) -> Arc<dyn Store>;
    /// Returns the store that lists, whose connections no claim uses.
    fn operator(&self) -> Arc<dyn Store>;
    /// Returns the relay between the server and the store that lists.
    fn relay(&self) -> &Relay;
}

fn main() {
    let report = Report::from_args("operate");
    report.title();
    let is_full = std::env::args().any(|argument| argument == "--full");
    let records = if is_full { 10 * report.keys() } else { report.keys() };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        if report.wants("redis", "") {
            let side = redis::RedisSide::start(records).await;
            console::all(&report, &side).await;
            listing::all(&report, &side, records).await;
        }
        if report.wants("postgres", "") {
            let side = postgres::PostgresSide::start(records).await;
            console::all(&report, &side).await;
            listing::all(&report, &side, records).await;
        }
    });
}
