//! Our own stores against the test kit's laws.
#![allow(clippy::unwrap_used, missing_docs)]
mod damage;

use std::path::Path;
use std::sync::Arc;

use idempotent::{Clock, MemoryStore, SqliteStore};
use idempotent_testkit::{Subject, VirtualClock, conformance};

use self::damage::Rows;

fn memory() -> Subject {
    let clock = VirtualClock::new();
    let store = MemoryStore::builder().clock(Arc::new(clock.clone())).build();
    Subject::new(store.clone()).second(store).on_clock(clock)
}

async fn open(path: &Path, clock: Option<&VirtualClock>) -> SqliteStore {
    let mut builder = SqliteStore::builder(path.to_str().unwrap());
    if let Some(clock) = clock {
        let clock: Arc<dyn Clock> = Arc::new(clock.clone());
        builder = builder.clock(clock);
    }
    builder.open().await.unwrap()
}

/// By the test's clock, or by the database's own. The second connection is opened on its own, as another process does.
async fn sqlite(clock: Option<VirtualClock>) -> Subject {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("laws.db");
    let store = open(&path, clock.as_ref()).await;
    let subject =
        Subject::new(store).second(open(&path, clock.as_ref()).await).planting(Rows::of(&path).await).guarded_by(dir);
    match clock {
        Some(clock) => subject.on_clock(clock),
        None => subject,
    }
}

// The memory store has no bytes to damage, and no client has a clock that it would look at.
conformance!(memory_store, memory(), without: [clients, losing, planting, foreign, batch, browse]);
// A file's records have no client but this machine: one clock, and no wire to lose a reply on. The table takes nothing
// foreign. The second subject races in fewer rounds: the statements are the same, only the clock is another.
conformance!(sqlite_on_a_virtual_clock, sqlite(Some(VirtualClock::new())), without: [clients, losing, foreign, watch]);
conformance!(sqlite_by_its_own_clock, async { sqlite(None).await.rounds(100) }, without: [clock, clients, losing, foreign, watch]);
