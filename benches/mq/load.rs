//! The cost of messages over RabbitMQ: `cargo xtask bench mq`.
//!
//! One queue, filled before it is consumed, in several ways: by a bare client that acknowledges, and by the consumer
//! runtime without keys, and with keys in memory and in Redis. Each figure is compared with that of the bare client in
//! the same round, measured alternately, so that a busy machine slows down both. Ratios are medians of the ratios
//! within a round. Deferrals are measured once, and need no comparison in a round.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, missing_docs, unreachable_pub)]
mod consumed;
#[path = "../redis/cpu.rs"]
mod cpu;
mod deferrals;
mod frames;
mod queue;
#[path = "../core/report.rs"]
#[allow(dead_code, reason = "the core's benches use the rest of it")]
mod report;
#[path = "../core/rounds.rs"]
#[allow(dead_code, reason = "the core's benches use the rest of it")]
mod rounds;
mod slices;
mod ways;

use idempotent_harness::servers::{RabbitServer, RedisServer};

use crate::queue::PREFETCH;
use crate::report::{Goal, Report};
use crate::slices::{Rounds, Taken};
use crate::ways::{Place, Way};

/// The ways that are compared with the bare client, with the goal for their throughput.
const COMPARED: [(&str, Way, Goal); 4] = [
    ("one by one", Way::OneByOne, Goal::None),
    ("unprotected", Way::Unprotected, Goal::AtLeast(0.95)),
    ("memory", Way::Memory, Goal::AtLeast(1.0)),
    ("redis", Way::Redis, Goal::AtLeast(0.7)),
];

fn main() {
    let report = Report::from_args("mq");
    report.title();
    let case = "to bare";
    let wanted: Vec<_> = COMPARED.iter().filter(|(name, ..)| report.wants(name, case)).collect();
    let rabbit = RabbitServer::start();
    deferrals::take(&report, &rabbit);
    if wanted.is_empty() {
        return;
    }
    let redis = RedisServer::start();
    let place = Place::new(&rabbit, &redis);
    let ways = std::iter::once(Way::Bare).chain(wanted.iter().map(|(_, way, _)| *way)).collect();
    let rounds = Rounds::take(&report, &place, &redis, ways);
    for (name, way, goal) in &wanted {
        let pair = |what: &str, unit, figure: fn(&Taken) -> f64, goal| {
            let pair = rounds.pair(*way, Way::Bare, figure);
            report.pair((name, &format!("{case}{what}"), Some(PREFETCH)), unit, pair, goal);
        };
        pair("", "messages/s", Taken::rate, *goal);
        pair(", CPU here", "us", Taken::cpu, Goal::None);
    }
    for (name, way, _) in std::iter::once(&("bare", Way::Bare, Goal::None)).chain(wanted) {
        let asked = frames::count(&report, &place, &rabbit, &redis, *way);
        let value = |what: &str, figure| report.value((name, what, Some(PREFETCH)), "a message", figure, Goal::None);
        value("frames sent", asked.frames);
        value("writes to the broker", asked.writes);
        value("calls of the store", asked.calls);
    }
}
