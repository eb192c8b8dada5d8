//! Counters that add up: one for each outcome.
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::Outcome;

macro_rules! outcomes {
    ($($index:literal $name:literal $pattern:pat,)*) => {
        const NAMES: &[&str] = &[$($name),*];

        impl Outcome {
            /// Its name in logs and metrics.
            #[must_use]
            pub fn name(&self) -> &'static str {
                NAMES[self.index()]
            }

            fn index(&self) -> usize {
                match self { $($pattern => $index,)* }
            }
        }
    };
}

outcomes! {
    0 "ran" Self::Ran,
    1 "unprotected" Self::Unprotected,
    2 "replayed" Self::Replayed,
    3 "consumed_without_result" Self::ConsumedWithoutResult,
    4 "released" Self::Released { .. },
    5 "in_flight" Self::InFlight { .. },
    6 "delayed" Self::Delayed { .. },
    7 "draining" Self::Draining { .. },
    8 "cancelled" Self::Cancelled,
    9 "abandoned" Self::Abandoned,
    10 "lease_lost" Self::LeaseLost,
    11 "unrecorded" Self::Unrecorded,
    12 "store_down" Self::StoreDown(_),
    13 "no_executor" Self::NoExecutor,
    14 "misconfigured" Self::Misconfigured,
    15 "failed" Self::Failed,
    16 "dead" Self::Dead { .. },
    17 "mismatch" Self::Mismatch,
    18 "bad_key" Self::BadKey,
    19 "nested" Self::Nested,
    20 "duplicate" Self::Duplicate,
    21 "waiting" Self::Waiting { .. },
    22 "held" Self::Held { .. },
}

/// On cache lines of their own: each run writes them, and should not slow what other threads only read.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Counters {
    deliveries: AtomicU64,
    late: AtomicU64,
    ended: [AtomicU64; NAMES.len()],
}

impl Counters {
    pub(crate) fn began(&self) {
        self.deliveries.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn late(&self) {
        self.late.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn ended(&self, outcome: &Outcome) {
        self.ended[outcome.index()].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn read(&self) -> Counts {
        let ended = self.ended.each_ref().map(|count| count.load(Ordering::Relaxed));
        let (deliveries, late) = (self.deliveries.load(Ordering::Relaxed), self.late.load(Ordering::Relaxed));
        Counts { deliveries, late, ended }
    }
}

/// How many deliveries an executor has seen, and what each came to. While nothing is running the outcomes add
/// up to the deliveries.
#[derive(Clone, Eq, PartialEq)]
pub struct Counts {
    deliveries: u64,
    late: u64,
    ended: [u64; NAMES.len()],
}

/// By name, without those that never happened.
impl fmt::Debug for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let happened = self.iter().filter(|(_, count)| *count > 0);
        let late = (self.late > 0).then_some(("late", self.late));
        f.debug_map().entry(&"deliveries", &self.deliveries).entries(happened).entries(late).finish()
    }
}

impl Counts {
    /// Calls begun.
    #[must_use]
    pub fn deliveries(&self) -> u64 {
        self.deliveries
    }

    /// Deliveries of [numbers](crate::Call::sequence) that came late: when a larger one of their stream was let in before.
    /// Each ended in an outcome, too, and ran or is dead as [`on_late`](crate::Policy::on_late) says.
    #[must_use]
    pub fn late(&self) -> u64 {
        self.late
    }

    /// Calls that ended with an outcome of this [name](Outcome::name).
    ///
    /// # Panics
    /// If no outcome has this name: a slip of the pen must not read as zero. [`iter`](Self::iter) has the names.
    #[must_use]
    pub fn of(&self, name: &str) -> u64 {
        match self.iter().find(|(known, _)| *known == name) {
            Some((_, count)) => count,
            #[allow(clippy::panic, reason = "documented: the name is wrong at the call")]
            None => panic!("no outcome is called `{name}`; there are {}", NAMES.join(", ")),
        }
    }

    /// Each outcome's name and count.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        NAMES.iter().copied().zip(self.ended)
    }

    /// Calls ended.
    #[must_use]
    pub fn ended(&self) -> u64 {
        self.ended.iter().sum()
    }
}
