//! Simulations of many seeds.
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use idempotent_core::Store;

use super::process::lock;
use super::{Coverage, Violation, run};
use idempotent_testkit::VirtualClock;

/// The result of many seeds.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Campaign {
    /// The number of simulated seeds.
    pub seeds: u64,
    /// The seeds with violations.
    pub failed: BTreeMap<u64, Vec<Violation>>,
    /// The situations that occurred.
    pub coverage: Coverage,
    /// The simulated duration of all seeds together.
    pub simulated: Duration,
}

/// Plays the seeds on as many threads as the machine has processors, each with a separate store. `store` also gets the
/// seed, so that it can alternate between stores.
#[must_use]
pub fn campaign(seeds: Range<u64>, store: impl Fn(u64, &VirtualClock) -> Arc<dyn Store> + Sync) -> Campaign {
    let (next, all) = (AtomicU64::new(seeds.start), Mutex::new(Campaign::default()));
    let work = || {
        let mut own = Campaign::default();
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if !seeds.contains(&seed) {
                break;
            }
            let world = run(seed, |clock| store(seed, clock));
            own.seeds += 1;
            own.simulated += world.simulated;
            own.coverage.merge(world.coverage);
            if !world.violations.is_empty() {
                own.failed.insert(seed, world.violations);
            }
        }
        lock(&all).merge(own);
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(work);
        }
    });
    all.into_inner().unwrap_or_else(PoisonError::into_inner)
}

impl Campaign {
    fn merge(&mut self, other: Self) {
        self.seeds += other.seeds;
        self.simulated += other.simulated;
        self.coverage.merge(other.coverage);
        self.failed.extend(other.failed);
    }

    /// Returns the first seed with a violation.
    #[must_use]
    pub fn failing_seed(&self) -> Option<u64> {
        self.failed.keys().next().copied()
    }
}
