//! Slices of all ways, in turns.
use idempotent_testkit::servers::RedisServer;

use crate::report::{Pair, Report};
use crate::rounds::median;
use crate::ways::{Consumed, Place, Way, numbers};

/// Rounds, and messages of a slice, unless it is only tried.
const ROUNDS: usize = 21;
const MESSAGES: u64 = 20_000;

/// What came of a slice.
#[derive(Clone, Copy)]
pub struct Taken {
    messages: u64,
    consumed: Consumed,
}

impl Taken {
    pub fn rate(&self) -> f64 {
        self.messages as f64 / self.consumed.wall.as_secs_f64()
    }

    /// Processor time of this process for each message, µs.
    pub fn cpu(&self) -> f64 {
        self.consumed.here.as_secs_f64() * 1e6 / self.messages as f64
    }
}

/// Rounds, in each a slice of every way.
pub struct Rounds {
    ways: Vec<Way>,
    taken: Vec<Vec<Taken>>,
}

impl Rounds {
    pub fn take(report: &Report, place: &Place, redis: &RedisServer, ways: Vec<Way>) -> Self {
        let (rounds, messages) = if report.is_tried() { (1, 500) } else { (ROUNDS, MESSAGES) };
        let mut taken = Vec::new();
        for round in 0..rounds {
            // Else the server's tables would grow through all of it.
            redis.command(&["FLUSHALL", "SYNC"]);
            let mut slices = vec![None; ways.len()];
            for turn in 0..ways.len() {
                // Each comes first, and each before and after each other.
                let at = (turn + round) % ways.len();
                let at = if (round / ways.len()).is_multiple_of(2) { at } else { ways.len() - 1 - at };
                place.runtime.block_on(place.queue.fill(numbers(messages), messages));
                slices[at] = Some(Taken { messages, consumed: place.consume(ways[at], &place.url, messages) });
            }
            taken.push(slices.into_iter().map(Option::unwrap).collect());
        }
        Self { ways, taken }
    }

    /// One way's figure beside another's.
    pub fn pair(&self, ours: Way, floor: Way, figure: impl Fn(&Taken) -> f64) -> Pair {
        let at = |way| self.ways.iter().position(|taken| *taken == way).expect("a way that was taken");
        let (ours, floor) = (at(ours), at(floor));
        let of = |way: usize| median(self.taken.iter().map(|round| figure(&round[way])).collect());
        let ratios = self.taken.iter().map(|round| figure(&round[ours]) / figure(&round[floor]));
        Pair { value: of(ours), floor: of(floor), ratio: median(ratios.collect()) }
    }
}
