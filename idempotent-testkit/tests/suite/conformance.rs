//! The kit over the memory store and over a custom store in two methods, on a virtual clock and in real time.
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use idempotent_core::{
    Cas, CasBackend, Clock, Key, MemoryStore, Record, StoreError, SystemClock, Version, VersionedRecord,
};
use idempotent_testkit::{
    CasSubject, Damage, DamageInjector, FaultStore, Subject, VirtualClock, cas_conformance, conformance,
};

/// A fault store adds nothing and hides nothing but batch; and it is a way to lose replies.
fn behind_faults() -> Subject {
    let clock = VirtualClock::new();
    let inner = MemoryStore::builder().clock(Arc::new(clock.clone())).build();
    let faults = FaultStore::new(inner, &clock);
    Subject::new(faults.clone()).second(faults.worker("other")).losing(faults).on_clock(clock)
}
conformance!(fault_store, behind_faults().rounds(50), without: [clients, planting, foreign, batch]);

/// A map of stored forms, with versions: a server, to its clients. It has a clock of its own.
#[derive(Clone, Debug)]
struct Table(Arc<Server>);

#[derive(Debug)]
struct Server {
    rows: Mutex<HashMap<Key, (Version, Vec<u8>)>>,
    versions: AtomicU64,
    clock: Arc<dyn Clock>,
}

impl Table {
    fn on(clock: Arc<dyn Clock>) -> Self {
        Self(Arc::new(Server { rows: Mutex::default(), versions: AtomicU64::new(1), clock }))
    }
}

#[async_trait]
impl DamageInjector for Table {
    fn holds(&self, _: Damage) -> bool {
        true
    }

    async fn plant(&self, key: &Key, damage: Damage) {
        let version = self.0.versions.fetch_add(1, Ordering::SeqCst);
        self.0.rows.lock().unwrap().insert(key.clone(), (version, damage.to_bytes()));
    }

    async fn look(&self, key: &Key) -> Vec<u8> {
        self.0.rows.lock().unwrap().get(key).map(|row| row.1.clone()).unwrap_or_default()
    }
}

#[async_trait]
impl CasBackend for Table {
    async fn read(&self, key: &Key) -> Result<VersionedRecord, StoreError> {
        let row = self.0.rows.lock().unwrap().get(key).cloned();
        tokio::task::yield_now().await; // room for a race
        let (version, record) = match row {
            Some((version, bytes)) => (version, Some(Record::from_bytes(&bytes)?)),
            None => (0, None),
        };
        Ok(VersionedRecord { record, version, now: self.0.clock.wall() })
    }

    async fn swap(&self, key: &Key, seen: Version, next: Option<&Record>) -> Result<bool, StoreError> {
        let mut rows = self.0.rows.lock().unwrap();
        if rows.get(key).map_or(0, |row| row.0) != seen {
            return Ok(false);
        }
        match next {
            Some(next) => {
                let version = self.0.versions.fetch_add(1, Ordering::SeqCst);
                rows.insert(key.clone(), (version, next.to_bytes()));
            }
            None => drop(rows.remove(key)),
        }
        Ok(true)
    }
}

/// A client of the table, in a process whose own clock is off. No client gives a time, so there is nothing to be off by.
fn client(table: &Table, clock: &VirtualClock, micros: i64) -> FaultStore {
    FaultStore::on_clock(Cas(table.clone()), Arc::new(clock.skewed(micros)))
}

fn table() -> Subject {
    let clock = VirtualClock::new();
    let table = Table::on(Arc::new(clock.clone()));
    let store = client(&table, &clock, 0);
    Subject::new(store.clone())
        .second(client(&table, &clock, 0))
        .clients(client(&table, &clock, 300_000_000), client(&table, &clock, -300_000_000))
        .losing(store)
        .planting(table)
        .on_clock(clock)
}
conformance!(custom_store, table().rounds(50), without: [batch, watch, search, purge, journal, order]);

// The simplest use: a store, in one line.
conformance!(
    custom_store_in_real_time,
    async { Subject::new(Cas(Table::on(Arc::new(SystemClock::new())))).rounds(50) },
    without: [clock, second, clients, losing, planting, foreign, batch, watch, search, purge, journal, order]
);

fn bare_table() -> CasSubject {
    let clock = VirtualClock::new();
    CasSubject::new(Table::on(Arc::new(clock.clone()))).on_clock(clock)
}
cas_conformance!(custom_backend, bare_table().rounds(100));
// Each form a builder may have: a backend as it is, and a future of one or of a subject.
cas_conformance!(custom_backend_in_real_time, Table::on(Arc::new(SystemClock::new())));
cas_conformance!(custom_backend_later, async { CasSubject::new(Table::on(Arc::new(SystemClock::new()))).rounds(20) });
cas_conformance!(custom_backend_later_on_a_clock, async { bare_table().rounds(20) });

/// Races in many rounds.
mod extras {
    use super::*;

    conformance!(fault_store, behind_faults(), without: [clients, planting, foreign, batch]);
    conformance!(custom_store, table(), without: [batch, watch, search, purge, journal, order]);
    cas_conformance!(custom_backend, bare_table());
}
