//! Our own stores against the test kit's laws.
#[cfg(feature = "stores")]
mod sqlite;

use std::sync::Arc;

use idempotent::MemoryStore;
use idempotent_testkit::{Subject, VirtualClock, conformance};

fn memory() -> Subject {
    let clock = VirtualClock::new();
    let store = MemoryStore::builder().clock(Arc::new(clock.clone())).build();
    Subject::new(store.clone()).second(store).on_clock(clock)
}

/// Rounds of each race: enough to find a planted bug, which the kit's mutants need four for. The extras have 1,000.
const ROUNDS: u32 = 100;

// The memory store has no bytes to damage, and no client has a clock that it would look at.
conformance!(memory_store, memory().rounds(ROUNDS), without: [clients, losing, planting, foreign]);

/// Races in many rounds.
mod extras {
    use super::*;

    conformance!(memory_store, memory(), without: [clients, losing, planting, foreign]);
}
