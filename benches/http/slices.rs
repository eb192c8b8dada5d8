//! Slices of all ways, in turns.
use std::time::Duration;

use idempotent_testkit::servers::RedisServer;

use crate::cpu;
use crate::report::{Pair, Report};
use crate::rounds::median;
use crate::route::Runs;
use crate::services::{Services, Way};
use crate::wrk::{CONNECTIONS, Load};

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mode {
    way: Way,
    replays: bool,
}

impl Mode {
    /// Each request has a key of its own.
    pub const fn fresh(way: Way) -> Self {
        Self { way, replays: false }
    }

    /// Each key has its answer already.
    pub const fn replay(way: Way) -> Self {
        Self { way, replays: true }
    }
}

/// Asked for in turns.
const KEYS: u64 = 1_000;
/// Rounds, unless it is only tried; and the shortest slice that wrk takes.
const ROUNDS: usize = 21;
const SECONDS: u64 = 1;

/// What came of a slice.
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

    /// ms
    pub fn p99(&self) -> f64 {
        self.p99.as_secs_f64() * 1e3
    }

    /// Processor time of this process for each request, µs.
    pub fn cpu(&self) -> f64 {
        self.here.as_secs_f64() * 1e6 / self.requests as f64
    }
}

/// Rounds, in each a slice of every mode.
pub struct Rounds {
    modes: Vec<Mode>,
    taken: Vec<Vec<Taken>>,
}

impl Rounds {
    pub fn take(report: &Report, services: &Services, server: &RedisServer, modes: Vec<Mode>) -> Self {
        let rounds = if report.is_tried() { 1 } else { ROUNDS };
        let mut taken = Vec::new();
        for round in 0..rounds {
            // Else the server's tables would grow through all of it.
            server.command(&["FLUSHALL", "SYNC"]);
            let mut slices = vec![None; modes.len()];
            for turn in 0..modes.len() {
                // Each comes first, and each before and after each other.
                let at = (turn + round) % modes.len();
                let at = if (round / modes.len()).is_multiple_of(2) { at } else { modes.len() - 1 - at };
                slices[at] = Some(slice(services, modes[at], &format!("round-{round}-mode-{at}-key-")));
            }
            taken.push(slices.into_iter().map(Option::unwrap).collect());
        }
        Self { modes, taken }
    }

    /// One mode's figure beside another's.
    pub fn pair(&self, ours: Mode, floor: Mode, figure: impl Fn(&Taken) -> f64) -> Pair {
        let at = |mode| self.modes.iter().position(|taken| *taken == mode).expect("a mode that was taken");
        let (ours, floor) = (at(ours), at(floor));
        let of = |mode: usize| median(self.taken.iter().map(|round| figure(&round[mode])).collect());
        let ratios = self.taken.iter().map(|round| figure(&round[ours]) / figure(&round[floor]));
        Pair { value: of(ours), floor: of(floor), ratio: median(ratios.collect()) }
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
        // The last ones are not waited for.
        let most = answered.requests + CONNECTIONS as u64;
        assert!((answered.requests..=most).contains(&ran), "{mode:?}: {ran} runs for {} requests", answered.requests);
    }
    Taken { requests: answered.requests, wall: answered.wall, p99: answered.p99, here }
}
