//! Alternating slices of all ways.
use std::time::Duration;

use idempotent_harness::servers::RedisServer;

use crate::cpu;
use crate::report::{Pair, Report, turns};
use crate::route::Runs;
use crate::services::{Services, Way};
use crate::wrk::{CONNECTIONS, Load};

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mode {
    way: Way,
    replays: bool,
}

impl Mode {
    /// Creates a mode with a new key for each request.
    pub const fn fresh(way: Way) -> Self {
        Self { way, replays: false }
    }

    /// Creates a mode in which each key already has its answer.
    pub const fn replay(way: Way) -> Self {
        Self { way, replays: true }
    }
}

/// The number of keys, used in turn.
const KEYS: u64 = 1_000;
/// The number of rounds in a measurement, and the shortest slice of wrk.
const ROUNDS: usize = 21;
const SECONDS: u64 = 1;

/// The result of a slice.
#[derive(Clone, Copy)]
pub struct Taken {
    requests: u64,
    wall: Duration,
    p99: Duration,
    here: Duration,
}

impl Taken {
    pub fn rate(&self) -> f64 {
        self.requests as f64 / self.wall.as_secs_f64()
    }

    /// Returns the p99 in ms.
    pub fn p99(&self) -> f64 {
        self.p99.as_secs_f64() * 1e3
    }

    /// Returns the processor time of this process for each request, in µs.
    pub fn cpu(&self) -> f64 {
        self.here.as_secs_f64() * 1e6 / self.requests as f64
    }
}

/// Rounds, each with a slice of every mode.
pub struct Rounds {
    modes: Vec<Mode>,
    taken: Vec<Vec<Taken>>,
}

impl Rounds {
    pub fn take(report: &Report, services: &Services, server: &RedisServer, modes: Vec<Mode>) -> Self {
        let rounds = if report.is_tried() { 1 } else { ROUNDS };
        let mut taken = Vec::new();
        for round in 0..rounds {
            // Without this command, the server's tables would grow during the whole run.
            server.command(&["FLUSHALL", "SYNC"]);
            let mut slices = vec![None; modes.len()];
            for at in turns(round, modes.len()) {
                slices[at] = Some(slice(services, modes[at], &format!("round-{round}-mode-{at}-key-")));
            }
            taken.push(slices.into_iter().map(Option::unwrap).collect());
        }
        Self { modes, taken }
    }

    /// Returns the figure of one mode compared with another.
    pub fn pair(&self, ours: Mode, floor: Mode, figure: impl Fn(&Taken) -> f64) -> Pair {
        let at = |mode| self.modes.iter().position(|taken| *taken == mode).expect("a mode that was taken");
        let (ours, floor) = (at(ours), at(floor));
        let rounds = self.taken.iter().map(|round| (figure(&round[ours]), figure(&round[floor])));
        Pair::medians(&rounds.collect::<Vec<_>>())
    }
}

fn slice(services: &Services, mode: Mode, prefix: &str) -> Taken {
    let runs = Runs::default();
    let route = services.route(mode.way, &runs);
    let keys = mode.replays.then_some(KEYS);
    services.use_up(&route, prefix, keys.unwrap_or(0));
    let served = services.serve(route);
    let (address, users) = (served.address, services.names.path());
    let (ran, spent) = (runs.count(), cpu::spent(std::process::id()));
    let answered = Load { address, prefix, keys, users, seconds: SECONDS }.run();
    let here = cpu::spent(std::process::id()).saturating_sub(spent);
    let ran = runs.count() - ran;
    if mode.replays {
        assert_eq!(ran, 0, "{mode:?}: all are replays");
    } else {
        // The last requests are not awaited.
        let most = answered.requests + CONNECTIONS as u64;
        assert!((answered.requests..=most).contains(&ran), "{mode:?}: {ran} runs for {} requests", answered.requests);
    }
    Taken { requests: answered.requests, wall: answered.wall, p99: answered.p99, here }
}
