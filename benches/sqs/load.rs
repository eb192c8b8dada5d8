//! The cost of messages over Amazon SQS: `cargo xtask bench sqs`.
//!
//! One queue for each slice, filled before it is consumed, in several ways: by a bare client that receives and deletes ten messages
//! at a time, and by the consumer runtime without keys, and with keys in memory and in Redis. Each figure is compared with the figure of
//! the bare client in the same round, measured alternately, so that a busy machine slows down both. Ratios are medians of the ratios
//! within a round. The server is moto, an emulator that takes most of the time.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, missing_docs, unreachable_pub)]
#[path = "../mq/consumed.rs"]
mod consumed;
#[path = "../redis/cpu.rs"]
mod cpu;
mod queue;
#[path = "../core/report.rs"]
#[allow(dead_code, reason = "the core's benches use more of this module")]
mod report;
#[path = "../core/rounds.rs"]
#[allow(dead_code, reason = "the core's benches use more of this module")]
mod rounds;
#[path = "../mq/slices.rs"]
mod slices;
mod ways;

use idempotent_harness::servers::{MotoServer, RedisServer};

use crate::queue::PREFETCH;
use crate::report::{Goal, Report};
use crate::slices::{Rounds, Taken};
use crate::ways::{Place, Way};

/// The number of messages in a slice. moto is slow, and slower with more messages in a queue.
const MESSAGES: u64 = 200;
/// The ways that are compared with the bare client, with the goal for their throughput.
const COMPARED: [(&str, Way, Goal); 3] = [
    ("unprotected", Way::Unprotected, Goal::None),
    ("memory", Way::Memory, Goal::AtLeast(0.9)),
    ("redis", Way::Redis, Goal::AtLeast(0.6)),
];

fn main() {
    let report = Report::from_args("sqs");
    report.title();
    let wanted: Vec<_> = COMPARED.iter().filter(|(name, ..)| report.wants(name, "to bare")).collect();
    if wanted.is_empty() {
        return;
    }
    let (moto, redis) = (MotoServer::start(), RedisServer::start());
    let place = Place::new(&moto, &redis);
    let ways = vec![Way::Bare, Way::Unprotected, Way::Memory, Way::Redis];
    let rounds = Rounds::sized(&report, &place, &redis, ways, MESSAGES);
    for (name, way, goal) in wanted {
        let pair = |what: &str, unit, figure: fn(&Taken) -> f64, goal| {
            let pair = rounds.pair(*way, Way::Bare, figure);
            report.pair((name, &format!("to bare{what}"), Some(PREFETCH)), unit, pair, goal);
        };
        pair("", "messages/s", Taken::rate, *goal);
        pair(", CPU here", "us", Taken::cpu, Goal::None);
    }
}
