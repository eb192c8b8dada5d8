//! The cost of delivery: `cargo xtask bench delivery`.
//!
//! Measures four things: the delay queue's take and commit, as two steps and as one, compared with `ZPOPMIN n` and
//! `HGET` (`HMGET` if n is larger than one) on the same server, which lose messages when their process crashes; the
//! lateness of due messages while many wait; the statements that the outbox adds to a transaction; and its relay,
//! compared with a RabbitMQ client that publishes the same messages in batches. Each figure and its floor are measured
//! alternately.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, clippy::print_stderr)]
#![allow(missing_docs, missing_debug_implementations, unreachable_pub)]
mod by_hand;
mod outbox;
mod queue;
#[path = "../core/report.rs"]
#[allow(dead_code, reason = "the core's benches use the rest of it")]
mod report;

use std::time::Duration;

use crate::report::{Goal, Pair, Report};

fn main() {
    let report = Report::from_args("delivery");
    report.title();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        queue::take_and_commit(&report).await;
        queue::lateness(&report).await;
        outbox::enqueue(&report).await;
        outbox::relay(&report).await;
    });
}

/// Returns messages per second, from the times of `messages` messages in each round.
pub fn rates(messages: u64, ours: &[Duration], floor: &[Duration]) -> Pair {
    let rate = |time: &Duration| messages as f64 / time.as_secs_f64();
    let rounds = ours.iter().zip(floor).map(|(ours, floor)| (rate(ours), rate(floor)));
    Pair::medians(&rounds.collect::<Vec<_>>())
}

/// The batch sizes, with the goal of each.
pub const BATCHES: [(usize, Goal); 2] = [(1, Goal::AtLeast(0.5)), (64, Goal::AtLeast(0.8))];
