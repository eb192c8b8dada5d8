//! Our own stores against the test kit's laws.
#![allow(clippy::unwrap_used, missing_docs)]
use std::sync::Arc;

use idempotent::{Clock, MemoryStore, SqliteStore};
use idempotent_testkit::{Subject, VirtualClock, conformance};

fn memory() -> Subject {
    let clock = VirtualClock::new();
    Subject::new(MemoryStore::builder().clock(Arc::new(clock.clone())).build()).on_clock(clock)
}

/// By the test's clock, or by the database's own.
async fn sqlite(clock: Option<VirtualClock>) -> Subject {
    let dir = tempfile::tempdir().unwrap();
    let mut builder = SqliteStore::builder(dir.path().join("laws.db").to_str().unwrap());
    if let Some(clock) = &clock {
        let clock: Arc<dyn Clock> = Arc::new(clock.clone());
        builder = builder.clock(clock);
    }
    let subject = Subject::new(builder.open().await.unwrap()).guarded_by(dir);
    match clock {
        Some(clock) => subject.on_clock(clock),
        None => subject,
    }
}

conformance!(memory_store, memory());
conformance!(sqlite_on_a_virtual_clock, sqlite(Some(VirtualClock::new())));
conformance!(sqlite_by_its_own_clock, sqlite(None));
