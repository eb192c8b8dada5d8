//! The cost of the idempotency layer for REST: `cargo xtask bench http`.
//!
//! One route, served in several ways and driven by `wrk` with the same requests. Each figure has a floor of the same
//! run, measured alternately, so that a busy machine slows down both. Ratios are medians of the ratios within a round.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, missing_docs, unreachable_pub)]
#[path = "../redis/cpu.rs"]
mod cpu;
#[path = "../core/report.rs"]
#[allow(dead_code, reason = "the core's benches use the rest of it")]
mod report;
mod route;
mod services;
mod slices;
mod wrk;

use idempotent_harness::servers::RedisServer;

use crate::report::{Goal, Report};
use crate::services::{Services, Way};
use crate::slices::{Mode, Rounds, Taken};
use crate::wrk::CONNECTIONS;

const BARE: Mode = Mode::fresh(Way::Bare);
const BY_HAND: Mode = Mode::fresh(Way::TwoCommands);
const MODES: [Mode; 9] = [
    BARE,
    Mode::fresh(Way::Memory),
    Mode::fresh(Way::SteadyMemory),
    Mode::replay(Way::Memory),
    BY_HAND,
    Mode::fresh(Way::Redis),
    Mode::replay(Way::Redis),
    Mode::fresh(Way::AxumIdempotent),
    Mode::replay(Way::AxumIdempotent),
];

/// A comparison, with the goal for its throughput.
struct Compared {
    store: &'static str,
    case: &'static str,
    ours: Mode,
    floor: Mode,
    goal: Goal,
}

const COMPARED: [Compared; 8] = [
    compared("memory", "fresh, to bare", (Mode::fresh(Way::Memory), BARE), Goal::AtLeast(0.85)),
    compared("memory", "fresh at a steady size, to bare", (Mode::fresh(Way::SteadyMemory), BARE), Goal::AtLeast(0.85)),
    compared("memory", "replay, to bare", (Mode::replay(Way::Memory), BARE), Goal::AtLeast(1.0)),
    compared("redis", "fresh, to two commands", (Mode::fresh(Way::Redis), BY_HAND), Goal::AtLeast(0.9)),
    compared("redis", "two commands, to bare", (BY_HAND, BARE), Goal::None),
    compared("redis", "replay, to bare", (Mode::replay(Way::Redis), BARE), Goal::None),
    compared("axum-idempotent", "fresh, to bare", (Mode::fresh(Way::AxumIdempotent), BARE), Goal::None),
    compared("axum-idempotent", "replay, to bare", (Mode::replay(Way::AxumIdempotent), BARE), Goal::None),
];

const fn compared(store: &'static str, case: &'static str, (ours, floor): (Mode, Mode), goal: Goal) -> Compared {
    Compared { store, case, ours, floor, goal }
}

fn main() {
    let report = Report::from_args("http");
    report.title();
    let wanted: Vec<_> = COMPARED.iter().filter(|compared| report.wants(compared.store, compared.case)).collect();
    if wanted.is_empty() {
        return;
    }
    let server = RedisServer::builder().start();
    let services = Services::new(&server);
    let asked = |mode: &Mode| wanted.iter().any(|compared| compared.ours == *mode || compared.floor == *mode);
    let rounds = Rounds::take(&report, &services, &server, MODES.into_iter().filter(asked).collect());
    for Compared { store, case, ours, floor, goal } in wanted {
        let at = |what: &str| format!("{case}{what}");
        let line = |what: &str, unit, figure: fn(&Taken) -> f64, goal| {
            report.pair((*store, &at(what), Some(CONNECTIONS)), unit, rounds.pair(*ours, *floor, figure), goal);
        };
        line("", "requests/s", Taken::rate, *goal);
        line(", p99", "ms", Taken::p99, Goal::None);
        line(", CPU here", "us", Taken::cpu, Goal::None);
    }
}
