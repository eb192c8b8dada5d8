//! The processor time of a cycle and of a duplicate, by the scripts of the store and by those of the prototype, in alternating rounds.
use idempotent_harness::servers::RedisServer;
use tokio::runtime::Runtime;

use crate::packed::{self, Packed};
use crate::records::Records;
use crate::report::{Goal, Pair, Report, median, turns};
use crate::{PACKED, REDIS};

const CYCLE: &str = "cycle, CPU of the server";
const DUPLICATE: &str = "duplicate, CPU of the server";
/// The numbers of live segments: one more than the segments of a retention.
const LIVE: [u64; 4] = [2, 3, 5, 9];
/// The cycles of a mode in a round.
const EACH: u64 = 8_000;
/// The members of a set of a closed segment.
const MEMBERS: u64 = 300;
/// The numbers between two slices, so that each cycle has a new key.
const APART: u64 = 1 << 24;

/// The µs of each round, first those of the store, then those of the prototype with each number of segments.
struct Times {
    cycles: Vec<Vec<f64>>,
    duplicates: Vec<Vec<f64>>,
}

pub fn all(report: &Report, is_full: bool, runtime: &Runtime) {
    let mut of_packed = LIVE.iter().flat_map(|live| [cycle(*live), duplicate(*live)]);
    let is_wanted = of_packed.any(|case| report.wants(PACKED, &case));
    if !is_wanted && !report.wants(REDIS, CYCLE) && !report.wants(REDIS, DUPLICATE) {
        return;
    }
    let server = RedisServer::start();
    let (rounds, each, members) = match (report.is_tried(), is_full) {
        (true, _) => (1, 128, 2),
        (false, true) => (31, EACH, MEMBERS),
        (false, false) => (7, EACH, MEMBERS),
    };
    packed::fill(&server, members);
    let times = measure(&server, runtime, rounds, each, members);
    let first = |times: &[Vec<f64>]| median(times.iter().map(|round| round[0]).collect());
    report.value((REDIS, CYCLE, None), "us", first(&times.cycles), Goal::None);
    report.value((REDIS, DUPLICATE, None), "us", first(&times.duplicates), Goal::None);
    for (at, live) in LIVE.into_iter().enumerate() {
        let goal = |most| if live == 5 { Goal::AtMost(most) } else { Goal::None };
        report.pair((PACKED, &cycle(live), None), "us", pair(&times.cycles, at + 1), goal(2.2));
        report.pair((PACKED, &duplicate(live), None), "us", pair(&times.duplicates, at + 1), goal(1.4));
    }
}

fn cycle(live: u64) -> String {
    format!("cycle with {live} segments, to a record")
}

fn duplicate(live: u64) -> String {
    format!("duplicate with {live} segments, to a record")
}

/// Measures all modes in each round, in changing order.
fn measure(server: &RedisServer, runtime: &Runtime, rounds: u64, each: u64, members: u64) -> Times {
    let mut records = Records::new(server, runtime);
    let mut packed: Vec<_> = LIVE.iter().map(|live| Packed::new(server, *live, members)).collect();
    let modes = 1 + packed.len();
    let mut times = Times { cycles: Vec::new(), duplicates: Vec::new() };
    for round in 0..rounds {
        let (mut cycles, mut duplicates) = (vec![0.0; modes], vec![0.0; modes]);
        for at in turns(usize::try_from(round).unwrap(), modes) {
            let from = (1 + round * modes as u64 + at as u64) * 2 * APART;
            let (own, others) = (from..from + each, from + APART..from + APART + each);
            match at.checked_sub(1) {
                None => {
                    cycles[at] = micros(server, each, || records.cycles(own.clone()));
                    duplicates[at] = micros(server, each, || records.duplicates(own));
                }
                Some(mode) => {
                    cycles[at] = micros(server, each, || packed[mode].cycles(own));
                    duplicates[at] = micros(server, each, || packed[mode].duplicates(others));
                }
            }
        }
        times.cycles.push(cycles);
        times.duplicates.push(duplicates);
    }
    times
}

/// Returns the processor time of the server for each operation in µs. The statistics of commands would count waits for a processor.
fn micros(server: &RedisServer, operations: u64, work: impl FnOnce()) -> f64 {
    let spent = || {
        let info = server.command(&["INFO", "cpu"]).text();
        let seconds = |name: &str| {
            let line = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            line.unwrap().trim().parse::<f64>().unwrap()
        };
        seconds("used_cpu_sys") + seconds("used_cpu_user")
    };
    let before = spent();
    work();
    (spent() - before) * 1e6 / operations as f64
}

/// Returns the figure of a mode, compared with the store in the same round.
fn pair(times: &[Vec<f64>], mode: usize) -> Pair {
    Pair::medians(&times.iter().map(|round| (round[mode], round[0])).collect::<Vec<_>>())
}
