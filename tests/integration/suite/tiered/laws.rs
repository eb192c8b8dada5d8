//! The laws of a store, and the simulator's worlds, over tiers that are well and tiers that are not.
use std::sync::{Arc, Mutex};

use idempotent::store::MemoryTier;
use idempotent::{MemoryStore, Store, TieredStore};
use idempotent_simulator as sim;
use idempotent_testkit::{FaultStore, Subject, VirtualClock, conformance};

use crate::tiered::unreliable_tiers::{Mood, Weak};

fn memory(clock: &VirtualClock) -> MemoryStore {
    MemoryStore::builder().clock(Arc::new(clock.clone())).build()
}

fn fast(clock: &VirtualClock, mood: Mood) -> Weak {
    Weak::new(MemoryTier::holding(1_000, Arc::new(clock.clone())), mood)
}

fn tiered(durable: impl Store, fast: &Weak, clock: &VirtualClock) -> TieredStore {
    TieredStore::builder(durable, fast.clone()).clock(Arc::new(clock.clone())).build()
}

/// Creates two processes with one durable store and one fast tier, and a network to the durable store that loses
/// calls.
fn over_memory(mood: Mood) -> Subject {
    let clock = VirtualClock::new();
    let (faults, fast) = (FaultStore::new(memory(&clock), &clock), fast(&clock, mood));
    let [first, second] = [faults.clone(), faults.worker("other")].map(|durable| tiered(durable, &fast, &clock));
    Subject::new(first).second(second).losing(faults).on_clock(clock)
}

conformance!(over_memory, over_memory(Mood::Well).rounds(50), without: [clients, planting, foreign, batch]);
conformance!(over_memory_while_down, over_memory(Mood::Down).rounds(50), without: [clients, planting, foreign, batch]);
conformance!(over_memory_that_forgets, over_memory(Mood::Forgets).rounds(50), without: [clients, planting, foreign, batch]);
conformance!(over_memory_that_is_flushed, over_memory(Mood::Flushed).rounds(50), without: [clients, planting, foreign, batch]);

/// Races in many rounds.
mod extras {
    use super::*;

    conformance!(over_memory, over_memory(Mood::Well), without: [clients, planting, foreign, batch]);
}

#[cfg(feature = "stores")]
mod sqlite {
    use std::path::Path;
    use std::time::Duration;

    use idempotent::SqliteStore;
    use idempotent::store::SqliteTier;

    use super::*;
    use crate::damage::Rows;

    async fn over_sqlite(mood: Mood) -> Subject {
        let (clock, dir) = (VirtualClock::new(), tempfile::tempdir().unwrap());
        let path = dir.path().join("laws.db");
        let open = async |path: &Path| {
            SqliteStore::builder(path.to_str().unwrap()).clock(Arc::new(clock.clone())).open().await.unwrap()
        };
        let fast = fast(&clock, mood);
        let first = tiered(open(&path).await, &fast, &clock);
        let second = tiered(open(&path).await, &fast, &clock);
        Subject::new(first).second(second).planting(Rows::of(&path).await).guarded_by(dir).rounds(50).on_clock(clock)
    }

    /// Creates two processes of one machine. The file that is their fast tier has the system's clock, so it keeps facts for longer
    /// than the clock of the test.
    async fn over_a_file() -> Subject {
        const LONG: Duration = Duration::from_secs(86_400);
        let (clock, dir) = (VirtualClock::new(), tempfile::tempdir().unwrap());
        let faults = FaultStore::new(memory(&clock), &clock);
        let open = async |durable: FaultStore| {
            let fast = SqliteTier::open(dir.path().join("facts.db").to_str().unwrap()).await.unwrap();
            TieredStore::builder(durable, fast).patience(LONG).clock(Arc::new(clock.clone())).build()
        };
        let (first, second) = (open(faults.clone()).await, open(faults.worker("other")).await);
        Subject::new(first).second(second).losing(faults).guarded_by(dir).rounds(50).on_clock(clock)
    }

    conformance!(over_a_file, over_a_file(), without: [clients, planting, foreign, batch]);
    conformance!(over_sqlite, over_sqlite(Mood::Well), without: [clients, losing, foreign, watch]);
    conformance!(over_sqlite_that_forgets, over_sqlite(Mood::Forgets), without: [clients, losing, foreign, watch]);
}

#[test]
fn the_invariants_hold_in_300_worlds_whatever_becomes_of_the_fast_tier() {
    for (mood, seeds) in [(Mood::Well, 0..100), (Mood::Forgets, 100..200), (Mood::Flushed, 200..300)] {
        let stores = Mutex::new(Vec::new());
        let campaign = sim::campaign(seeds, |_, clock| {
            let store = tiered(memory(clock), &fast(clock, mood), clock);
            stores.lock().unwrap().push(store.clone());
            Arc::new(store)
        });
        assert!(campaign.failed.is_empty(), "{mood:?}: {:#?}", campaign.failed);
        let counts = stores.into_inner().unwrap().iter().map(TieredStore::counts).collect::<Vec<_>>();
        let hits: u64 = counts.iter().map(|counts| counts.hits).sum();
        let repaired: u64 = counts.iter().map(|counts| counts.repaired).sum();
        assert!(hits > 100 && repaired > 10, "{mood:?}: {hits} hits and {repaired} repairs show nothing");
    }
}
