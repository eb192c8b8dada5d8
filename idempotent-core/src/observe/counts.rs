//! Counters of deliveries, one for each outcome.
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::Outcome;

macro_rules! outcomes {
    ($($index:literal $name:literal $pattern:pat,)*) => {
        const NAMES: &[&str] = &[$($name),*];

        impl Outcome {
            /// Returns the names of all outcomes, so that metrics can start each of them at 0.
            #[must_use]
            pub fn names() -> &'static [&'static str] {
                NAMES
            }

            /// Returns the name of the outcome in logs and metrics.
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

/// The live counters of an executor.
///
/// Aligned to their own cache lines: each run writes them, and must not slow down threads that only read other data.
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

    pub(crate) fn read(&self) -> ExecutorCounts {
        let ended = self.ended.each_ref().map(|count| count.load(Ordering::Relaxed));
        let (deliveries, late) = (self.deliveries.load(Ordering::Relaxed), self.late.load(Ordering::Relaxed));
        ExecutorCounts { deliveries, late, ended }
    }
}

/// A snapshot of an executor's counters. While no call is in progress, the outcomes add up to the deliveries.
#[derive(Clone, Eq, PartialEq)]
pub struct ExecutorCounts {
    deliveries: u64,
    late: u64,
    ended: [u64; NAMES.len()],
}

/// Formats the counters by name, without those that are zero.
impl fmt::Debug for ExecutorCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let happened = self.iter().filter(|(_, count)| *count > 0);
        let late = (self.late > 0).then_some(("late", self.late));
        f.debug_map().entry(&"deliveries", &self.deliveries).entries(happened).entries(late).finish()
    }
}

impl ExecutorCounts {
    /// Returns the number of calls.
    #[must_use]
    pub fn deliveries(&self) -> u64 {
        self.deliveries
    }

    /// Returns the number of deliveries of [numbers](crate::Call::sequence) that arrived after a larger number of their
    /// stream was admitted. Each of them also has an outcome: it ran, or is dead, depending on
    /// [`on_late`](crate::Policy::on_late).
    #[must_use]
    pub fn late(&self) -> u64 {
        self.late
    }

    /// Returns the number of calls with the outcome of this [name](Outcome::name).
    ///
    /// # Panics
    /// If no outcome has this name, since a typo must not read as zero. [`iter`](Self::iter) returns all names.
    #[must_use]
    pub fn of(&self, name: &str) -> u64 {
        match self.iter().find(|(known, _)| *known == name) {
            Some((_, count)) => count,
            #[allow(clippy::panic, reason = "documented: the name is wrong at the call")]
            None => panic!("unknown outcome `{name}`; expected one of {}", NAMES.join(", ")),
        }
    }

    /// Returns the name and count of each outcome.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        NAMES.iter().copied().zip(self.ended)
    }

    /// Returns the number of calls that have ended.
    #[must_use]
    pub fn ended(&self) -> u64 {
        self.ended.iter().sum()
    }
}
