//! An observer of the executor that counts deliveries by their outcomes.
use std::collections::HashSet;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use idempotent::observe::RunInfo;
use idempotent::{Event, Identity, Observer, Outcome, Scene};

use crate::SCOPE;

/// Cheap to clone: clones count together.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally(Arc<Counts>);

#[derive(Debug, Default)]
struct Counts {
    read: AtomicU64,
    malformed: AtomicU64,
    executed: AtomicU64,
    replayed: AtomicU64,
    dead: AtomicU64,
    deferred: AtomicU64,
    failed: AtomicU64,
    taken_over: AtomicU64,
    /// Hashes of 128 bits, the same the store goes by.
    keys: Mutex<HashSet<u128>>,
    store_down: Mutex<Option<Down>>,
}

/// Since when the store has not answered, and whether that was said.
#[derive(Clone, Copy, Debug)]
struct Down {
    since: Instant,
    said: bool,
}

/// The counts at one moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Counted {
    /// Lines that are deliveries, malformed ones too.
    pub(crate) read: u64,
    pub(crate) distinct_keys: usize,
    pub(crate) executed: u64,
    pub(crate) replayed: u64,
    pub(crate) deferred: u64,
    pub(crate) failed: u64,
    pub(crate) dead: u64,
    pub(crate) malformed: u64,
    /// Runs after a worker that let its lease run out.
    pub(crate) taken_over: u64,
}

impl Counted {
    pub(crate) fn settled(&self) -> u64 {
        self.executed + self.replayed + self.dead + self.malformed
    }
}

impl Observer for Tally {
    fn on(&self, run: &RunInfo<'_>, event: &Event<'_>) {
        let counts = &*self.0;
        match event {
            Event::Claimed { taken_over: Some(_) } => add(&counts.taken_over),
            Event::Ended { outcome, .. } => {
                counts.note_store(outcome);
                match outcome {
                    Outcome::Ran => return add(&counts.executed),
                    Outcome::Replayed | Outcome::ConsumedWithoutResult => add(&counts.replayed),
                    Outcome::InFlight { .. } | Outcome::Delayed { .. } => add(&counts.deferred),
                    Outcome::Dead { .. } | Outcome::Failed | Outcome::Mismatch | Outcome::BadKey | Outcome::Nested => {
                        add(&counts.dead)
                    }
                    _ => {}
                }
                // It had the key, and did not get it done. A last run that fails is dead as well.
                if run.attempt.is_some() && !outcome.is_deferral() {
                    add(&counts.failed);
                }
            }
            _ => {}
        }
    }
}

impl Counts {
    fn note_store(&self, outcome: &Outcome) {
        let mut down = lock(&self.store_down);
        match outcome {
            Outcome::StoreDown(_) => _ = down.get_or_insert_with(|| Down { since: Instant::now(), said: false }),
            _ => *down = None,
        }
    }
}

impl Tally {
    /// A delivery was read.
    pub(crate) fn delivery(&self, key: &str) {
        add(&self.0.read);
        if let Ok(key) = Identity::new(Scene::Mq, SCOPE, key).key("tally") {
            lock(&self.0.keys).insert(key.hash());
        }
    }

    /// A malformed delivery was read.
    pub(crate) fn malformed(&self) {
        add(&self.0.read);
        add(&self.0.malformed);
    }

    /// Returns the time since the last claim that the store answered, and whether this call is the first to report the
    /// outage.
    pub(crate) fn store_down(&self) -> (Duration, bool) {
        match &mut *lock(&self.0.store_down) {
            Some(down) => (down.since.elapsed(), !std::mem::replace(&mut down.said, true)),
            None => (Duration::ZERO, true),
        }
    }

    /// Returns the time since the last claim that the store answered, or `None` if it is reachable.
    #[cfg(feature = "servers")]
    pub(crate) fn store_down_for(&self) -> Option<Duration> {
        lock(&self.0.store_down).map(|down| down.since.elapsed())
    }

    pub(crate) fn read(&self) -> Counted {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let counts = &*self.0;
        Counted {
            read: read(&counts.read),
            distinct_keys: lock(&counts.keys).len(),
            executed: read(&counts.executed),
            replayed: read(&counts.replayed),
            deferred: read(&counts.deferred),
            failed: read(&counts.failed),
            dead: read(&counts.dead),
            malformed: read(&counts.malformed),
            taken_over: read(&counts.taken_over),
        }
    }
}

/// Prints the counts for the progress bar.
impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let now = self.read();
        write!(
            f,
            "{} executed, {} replayed, {} to go",
            now.executed,
            now.replayed,
            now.read - now.settled().min(now.read)
        )
    }
}

fn add(count: &AtomicU64) {
    count.fetch_add(1, Ordering::Relaxed);
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
