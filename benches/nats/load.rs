//! The cost of messages over NATS JetStream: `cargo xtask bench nats`.
//!
//! One stream, filled before it is consumed, in several ways: by a bare client that acknowledges, by one that also waits for the
//! confirmation of each acknowledgement, and by the consumer runtime without keys, and with keys in memory and in Redis. The
//! consumer runtime waits for the confirmations. Each figure is compared with that of a bare client in the same round, measured
//! alternately, so that a busy machine slows down both. Ratios are medians of the ratios within a round.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, missing_docs, unreachable_pub)]
#[path = "../mq/consumed.rs"]
mod consumed;
#[path = "../redis/cpu.rs"]
mod cpu;
#[path = "../core/report.rs"]
#[allow(dead_code, reason = "the core's benches use the rest of it")]
mod report;
#[path = "../core/rounds.rs"]
#[allow(dead_code, reason = "the core's benches use the rest of it")]
mod rounds;
#[path = "../mq/slices.rs"]
mod slices;
mod stream;
mod ways;

use idempotent_harness::servers::{NatsServer, RedisServer};

use crate::report::{Goal, Report};
use crate::slices::{Rounds, Taken};
use crate::stream::PREFETCH;
use crate::ways::{Place, Way};

/// The ways that are compared, with the floor and the goal for their throughput.
const COMPARED: [(&str, Way, Way, Goal); 5] = [
    ("bare, confirmed", Way::Confirmed, Way::Bare, Goal::None),
    ("unprotected", Way::Unprotected, Way::Confirmed, Goal::None),
    ("memory", Way::Memory, Way::Confirmed, Goal::AtLeast(0.9)),
    ("redis", Way::Redis, Way::Confirmed, Goal::AtLeast(0.6)),
    ("memory", Way::Memory, Way::Bare, Goal::None),
];

fn main() {
    let report = Report::from_args("nats");
    report.title();
    let case = |floor| if floor == Way::Bare { "to bare" } else { "to bare, confirmed" };
    let wanted: Vec<_> = COMPARED.iter().filter(|(name, _, floor, _)| report.wants(name, case(*floor))).collect();
    if wanted.is_empty() {
        return;
    }
    let (nats, redis) = (NatsServer::start(), RedisServer::start());
    let place = Place::new(&nats, &redis);
    let ways = vec![Way::Bare, Way::Confirmed, Way::Unprotected, Way::Memory, Way::Redis];
    let rounds = Rounds::take(&report, &place, &redis, ways);
    for (name, way, floor, goal) in wanted {
        let pair = |what: &str, unit, figure: fn(&Taken) -> f64, goal| {
            let pair = rounds.pair(*way, *floor, figure);
            report.pair((name, &format!("{}{what}", case(*floor)), Some(PREFETCH)), unit, pair, goal);
        };
        pair("", "messages/s", Taken::rate, *goal);
        pair(", CPU here", "us", Taken::cpu, Goal::None);
    }
}
