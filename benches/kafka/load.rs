//! The cost of messages over Kafka: `cargo xtask bench kafka`.
//!
//! One topic for each slice, filled before it is consumed, in several ways: by a bare client that stores the offset of each message
//! and commits at intervals, and by the consumer runtime without keys, and with keys in memory and in Redis. Each figure is compared
//! with the figure of the bare client in the same round, measured alternately, so that a busy machine slows down both. Ratios are
//! medians of the ratios within a round. The broker is tansu, with its messages in memory.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, missing_docs, unreachable_pub)]
#[path = "../mq/consumed.rs"]
mod consumed;
#[path = "../redis/cpu.rs"]
mod cpu;
#[path = "../core/report.rs"]
#[allow(dead_code, reason = "the core's benches use more of this module")]
mod report;
#[path = "../core/rounds.rs"]
#[allow(dead_code, reason = "the core's benches use more of this module")]
mod rounds;
#[path = "../mq/slices.rs"]
mod slices;
mod topic;
mod ways;

use idempotent_harness::servers::{KafkaServer, RedisServer};

use crate::report::{Goal, Report};
use crate::slices::{Rounds, Taken};
use crate::topic::PREFETCH;
use crate::ways::{Place, Way};

/// The ways that are compared with the bare client, with the goal for their throughput.
const COMPARED: [(&str, Way, Goal); 3] = [
    ("unprotected", Way::Unprotected, Goal::None),
    ("memory", Way::Memory, Goal::AtLeast(0.9)),
    ("redis", Way::Redis, Goal::AtLeast(0.6)),
];

fn main() {
    let report = Report::from_args("kafka");
    report.title();
    let wanted: Vec<_> = COMPARED.iter().filter(|(name, ..)| report.wants(name, "to bare")).collect();
    if wanted.is_empty() {
        return;
    }
    let (kafka, redis) = (KafkaServer::start(), RedisServer::start());
    let place = Place::new(&kafka, &redis);
    let rounds = Rounds::take(&report, &place, &redis, vec![Way::Bare, Way::Unprotected, Way::Memory, Way::Redis]);
    for (name, way, goal) in wanted {
        let pair = |what: &str, unit, figure: fn(&Taken) -> f64, goal| {
            let pair = rounds.pair(*way, Way::Bare, figure);
            report.pair((name, &format!("to bare{what}"), Some(PREFETCH)), unit, pair, goal);
        };
        pair("", "messages/s", Taken::rate, *goal);
        pair(", CPU here", "us", Taken::cpu, Goal::None);
    }
}
