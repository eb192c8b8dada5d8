//! The SQLite store on the test's clock and on the database's clock.
use std::path::Path;
use std::sync::Arc;

use idempotent::{Clock, SqliteStore};
use idempotent_testkit::{Subject, VirtualClock, conformance};

use super::ROUNDS;
use crate::damage::Rows;

async fn open(path: &Path, clock: Option<&VirtualClock>) -> SqliteStore {
    let mut builder = SqliteStore::builder(path.to_str().unwrap());
    if let Some(clock) = clock {
        let clock: Arc<dyn Clock> = Arc::new(clock.clone());
        builder = builder.clock(clock);
    }
    builder.open().await.unwrap()
}

/// Creates stores on the test's clock or on the database's clock. The second one has a separate connection, like
/// another process.
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

async fn sqlite_on_a_clock() -> Subject {
    sqlite(Some(VirtualClock::new())).await
}

// A file's records have no client but this machine: one clock, and no wire to lose a reply on. The table takes nothing
// foreign.
conformance!(
    sqlite_on_a_virtual_clock,
    async { sqlite_on_a_clock().await.rounds(ROUNDS) },
    without: [clients, losing, foreign, watch]
);

/// The same statements by the system's clock, which most laws have to wait for, and races in many rounds.
mod extras {
    use super::*;

    conformance!(
        sqlite_by_its_own_clock,
        async { sqlite(None).await.rounds(ROUNDS) },
        without: [clock, clients, losing, foreign, watch]
    );
    conformance!(sqlite_on_a_virtual_clock, sqlite_on_a_clock(), without: [clients, losing, foreign, watch]);
}
