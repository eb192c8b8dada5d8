//! Alternating slices of all ways.
use idempotent_harness::servers::RedisServer;

use crate::consumed::{Consumed, numbers};
use crate::report::{Pair, Report};
use crate::rounds::median;
use crate::ways::{Place, Way};

/// The number of rounds, and the usual number of messages in a slice, in a measurement.
const ROUNDS: usize = 21;
const MESSAGES: u64 = 20_000;

/// The result of a slice.
#[derive(Clone, Copy)]
pub struct Taken {
    messages: u64,
    consumed: Consumed,
}

impl Taken {
    pub fn rate(&self) -> f64 {
        self.messages as f64 / self.consumed.wall.as_secs_f64()
    }

    /// Returns the processor time of this process for each message, in µs.
    pub fn cpu(&self) -> f64 {
        self.consumed.here.as_secs_f64() * 1e6 / self.messages as f64
    }
}

/// Rounds, each with a slice of every way.
pub struct Rounds {
    ways: Vec<Way>,
    taken: Vec<Vec<Taken>>,
}

impl Rounds {
    #[allow(dead_code, reason = "the bench of a slow broker has smaller slices")]
    pub fn take(report: &Report, place: &Place, redis: &RedisServer, ways: Vec<Way>) -> Self {
        Self::sized(report, place, redis, ways, MESSAGES)
    }

    /// Takes the rounds, with this number of messages in a slice.
    pub fn sized(report: &Report, place: &Place, redis: &RedisServer, ways: Vec<Way>, messages: u64) -> Self {
        let (rounds, messages) = if report.is_tried() { (1, messages.min(500)) } else { (ROUNDS, messages) };
        let mut taken = Vec::new();
        for round in 0..rounds {
            // Without this command, the server's tables would grow during the whole run.
            redis.command(&["FLUSHALL", "SYNC"]);
            let mut slices = vec![None; ways.len()];
            for turn in 0..ways.len() {
                // Each way is first sometimes, and runs before and after each other way.
                let at = (turn + round) % ways.len();
                let at = if (round / ways.len()).is_multiple_of(2) { at } else { ways.len() - 1 - at };
                place.runtime.block_on(place.queue.fill(numbers(messages), messages));
                slices[at] = Some(Taken { messages, consumed: place.consume(ways[at], &place.url, messages) });
            }
            taken.push(slices.into_iter().map(Option::unwrap).collect());
        }
        Self { ways, taken }
    }

    /// Returns the figure of one way compared with another.
    pub fn pair(&self, ours: Way, floor: Way, figure: impl Fn(&Taken) -> f64) -> Pair {
        let at = |way| self.ways.iter().position(|taken| *taken == way).expect("a way that was taken");
        let (ours, floor) = (at(ours), at(floor));
        let of = |way: usize| median(self.taken.iter().map(|round| figure(&round[way])).collect());
        let ratios = self.taken.iter().map(|round| figure(&round[ours]) / figure(&round[floor]));
        Pair { value: of(ours), floor: of(floor), ratio: median(ratios.collect()) }
    }
}
