//! A consumer process: its places, its queue, its breaker, and all that it remembers about keys and slots.
use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use idempotent_core::__private::backoff;

use super::bug::Bug;
use super::clock::{MILLISECOND, SECOND};
use super::packed::Header;
use super::scenario::{Layout, Retention, Setting};
use crate::dice::Dice;

/// The number of deliveries that a process handles at once.
const PLACES: usize = 64;
/// The time for which a process remembers a consumed key.
const CACHED: u64 = 60 * SECOND;
/// The shortest pause between two claims of a key by one process.
const CLAIM_PAUSE: u64 = 100 * MILLISECOND;

/// The state of the breaker for the store, as that of the consumer runtime.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Breaker {
    Closed,
    Open { until: u64, failures: u32 },
    Trying { failures: u32 },
}

/// A delivery that waits for a place.
pub(super) type Waiting = (u32, u32);

/// A consumer process.
#[derive(Debug)]
pub(super) struct Process {
    pub(super) is_alive: bool,
    pub(super) is_draining: bool,
    /// The number of starts. Answers to an earlier process are ignored.
    pub(super) starts: u32,
    pub(super) layout: Layout,
    pub(super) retention: Retention,
    /// The difference between the clock of the process and the virtual time.
    pub(super) clock: i64,
    pub(super) queue: VecDeque<Waiting>,
    /// The calls that have a place.
    pub(super) calls: BTreeSet<u32>,
    pub(super) headers: Vec<Option<Arc<Header>>>,
    consumed: HashMap<u32, u64>,
    held: HashSet<u32>,
    not_before: HashMap<u32, u64>,
    breaker: Breaker,
}

/// The decision of a process about a delivery, before the store is asked.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Local {
    Claim,
    Consumed,
    InFlight,
}

impl Process {
    pub(super) fn new(setting: &Setting, layout: Layout, dice: &mut Dice) -> Self {
        Self {
            is_alive: false,
            is_draining: false,
            starts: 0,
            layout,
            retention: setting.retention,
            clock: dice.below(setting.skew + 1) as i64 - setting.skew as i64 / 2,
            queue: VecDeque::new(),
            calls: BTreeSet::new(),
            headers: vec![None; setting.slots as usize],
            consumed: HashMap::new(),
            held: HashSet::new(),
            not_before: HashMap::new(),
            breaker: Breaker::Closed,
        }
    }

    /// Starts the process, which knows nothing yet.
    pub(super) fn start(&mut self, layout: Layout) {
        (self.is_alive, self.is_draining, self.layout) = (true, false, layout);
        self.starts += 1;
        self.headers.fill(None);
        self.consumed.clear();
        self.held.clear();
        self.not_before.clear();
        self.breaker = Breaker::Closed;
    }

    pub(super) fn takes_deliveries(&self) -> bool {
        self.is_alive && !self.is_draining
    }

    pub(super) fn has_place(&self) -> bool {
        self.calls.len() < PLACES
    }

    /// Decides about a delivery from what the process knows.
    pub(super) fn local(&self, message: u32, now: u64, bug: Option<Bug>) -> Local {
        let is_later = |times: &HashMap<u32, u64>| times.get(&message).is_some_and(|until| *until > now);
        if is_later(&self.consumed) {
            Local::Consumed
        } else if self.held.contains(&message) && bug != Some(Bug::NoSingleFlight)
            || is_later(&self.not_before) && bug != Some(Bug::NoClaimRate)
        {
            Local::InFlight
        } else {
            Local::Claim
        }
    }

    /// Notes that the process claims a key. Returns true if the process already claims or runs it.
    pub(super) fn hold(&mut self, message: u32) -> bool {
        !self.held.insert(message)
    }

    pub(super) fn free(&mut self, message: u32) {
        self.held.remove(&message);
    }

    pub(super) fn remember_consumed(&mut self, message: u32, now: u64, bug: Option<Bug>) {
        if bug == Some(Bug::NoCache) {
            return;
        }
        if self.consumed.len() > 4_096 {
            self.consumed.retain(|_, until| *until > now);
        }
        self.consumed.insert(message, now + CACHED.min(self.retention.retain));
    }

    pub(super) fn remember_in_flight(&mut self, message: u32, now: u64) {
        if self.not_before.len() > 4_096 {
            self.not_before.retain(|_, until| *until > now);
        }
        self.not_before.insert(message, now + CLAIM_PAUSE);
    }

    /// Returns the delay of a delivery if the breaker refuses it. The first delivery after the pause is a trial.
    pub(super) fn refused_for(&mut self, now: u64) -> Option<u64> {
        match self.breaker {
            Breaker::Closed => None,
            Breaker::Open { until, failures } if until <= now => {
                self.breaker = Breaker::Trying { failures };
                None
            }
            Breaker::Open { until, .. } => Some((until - now).max(SECOND)),
            Breaker::Trying { .. } => Some(SECOND),
        }
    }

    /// Notes that the store failed.
    pub(super) fn store_failed(&mut self, now: u64, dice: &mut Dice) {
        let failures = match self.breaker {
            Breaker::Open { .. } => return,
            Breaker::Closed => 0,
            Breaker::Trying { failures } => failures + 1,
        };
        let pause =
            backoff::delay(Duration::from_secs(1), Duration::from_secs(30), failures, 20, u128::from(dice.roll()));
        self.breaker = Breaker::Open { until: now + pause.as_micros() as u64, failures };
    }

    /// Notes that the store answered.
    pub(super) fn store_answered(&mut self) {
        if matches!(self.breaker, Breaker::Trying { .. }) {
            self.breaker = Breaker::Closed;
        }
    }

    /// Notes that a trial delivery ended without a request, so that the next one is the trial.
    pub(super) fn trial_ended(&mut self, now: u64) {
        if let Breaker::Trying { failures } = self.breaker {
            self.breaker = Breaker::Open { until: now, failures };
        }
    }
}
