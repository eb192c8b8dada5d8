//! The kit over the memory store and over a custom store in two methods, on a virtual clock and in real time.
#![allow(clippy::unwrap_used)]
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use idempotent_core::{Cas, CasBackend, Clock, Key, MemoryStore, Record, Seen, StoreError, SystemClock, Version};
use idempotent_testkit::{CasSubject, FaultStore, Subject, VirtualClock, cas_conformance, conformance};

fn memory() -> Subject {
    let clock = VirtualClock::new();
    Subject::new(MemoryStore::builder().clock(Arc::new(clock.clone())).build()).on_clock(clock)
}
conformance!(memory_store, memory());

/// A fault store without faults adds nothing and hides nothing.
fn without_faults() -> Subject {
    let clock = VirtualClock::new();
    let inner = MemoryStore::builder().clock(Arc::new(clock.clone())).build();
    Subject::new(FaultStore::new(inner, &clock)).on_clock(clock)
}
conformance!(fault_store_without_faults, without_faults());

/// A map of stored forms, with versions.
#[derive(Debug)]
struct Table {
    rows: Mutex<HashMap<Key, (Version, Vec<u8>)>>,
    versions: AtomicU64,
    clock: Arc<dyn Clock>,
}

impl Table {
    fn on(clock: Arc<dyn Clock>) -> Self {
        Self { rows: Mutex::default(), versions: AtomicU64::new(1), clock }
    }
}

#[async_trait]
impl CasBackend for Table {
    async fn read(&self, key: &Key) -> Result<Seen, StoreError> {
        let row = self.rows.lock().unwrap().get(key).cloned();
        tokio::task::yield_now().await; // room for a race
        let (version, record) = match row {
            Some((version, bytes)) => (version, Some(Record::from_bytes(&bytes)?)),
            None => (0, None),
        };
        Ok(Seen { record, version, now: self.clock.wall() })
    }

    async fn swap(&self, key: &Key, seen: Version, next: Option<&Record>) -> Result<bool, StoreError> {
        let mut rows = self.rows.lock().unwrap();
        if rows.get(key).map_or(0, |row| row.0) != seen {
            return Ok(false);
        }
        match next {
            Some(next) => {
                let version = self.versions.fetch_add(1, Ordering::SeqCst);
                rows.insert(key.clone(), (version, next.to_bytes()));
            }
            None => drop(rows.remove(key)),
        }
        Ok(true)
    }
}

fn table() -> Subject {
    let clock = VirtualClock::new();
    Subject::new(Cas(Table::on(Arc::new(clock.clone())))).on_clock(clock)
}
conformance!(custom_store, table());
conformance!(custom_store_in_real_time, async { Subject::new(Cas(Table::on(Arc::new(SystemClock::new())))) });

fn bare_table() -> CasSubject {
    let clock = VirtualClock::new();
    CasSubject::new(Table::on(Arc::new(clock.clone()))).on_clock(clock)
}
cas_conformance!(custom_backend, bare_table());
// Each form a builder may have: a backend as it is, and a future of one or of a subject.
cas_conformance!(custom_backend_in_real_time, Table::on(Arc::new(SystemClock::new())));
cas_conformance!(custom_backend_later, async { Table::on(Arc::new(SystemClock::new())) });
cas_conformance!(custom_backend_later_on_a_clock, async { bare_table() });
