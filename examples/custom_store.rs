//! Implements a store with two methods over a map, runs a handler on it, and verifies the store with the laws of the test kit.
//!
//! Run the laws with `cargo test -p idempotent-examples --example custom_store`.
#![allow(clippy::print_stdout, reason = "an example")]
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use idempotent::store::{Cas, CasBackend, Record, SystemClock, Version, VersionedRecord};
use idempotent::{Clock, Executor, Key, Outcome, Rejection, StoreError, idempotent};

/// A stand-in for any system that can compare and swap one value: etcd, DynamoDB, a table with a version column.
#[derive(Clone, Debug)]
struct Shelf {
    inside: Arc<Mutex<Inside>>,
    /// One clock for all clients. A server has its own; a map in the process borrows the process's.
    clock: Arc<dyn Clock>,
}

#[derive(Debug, Default)]
struct Inside {
    rows: HashMap<Key, (Version, Vec<u8>)>,
    /// The last version. Each write of any key increments it, so a key that was deleted and written again has a new
    /// version.
    last: Version,
}

#[async_trait]
impl CasBackend for Shelf {
    async fn read(&self, key: &Key) -> Result<VersionedRecord, StoreError> {
        let row = self.inside.lock().unwrap_or_else(PoisonError::into_inner).rows.get(key).cloned();
        let (version, record) = match row {
            // What cannot be read is an error with a kind that says so, and is left as it is.
            Some((version, bytes)) => (version, Some(Record::from_bytes(&bytes)?)),
            None => (0, None),
        };
        Ok(VersionedRecord { record, version, now: self.clock.wall() })
    }

    async fn swap(&self, key: &Key, seen: Version, next: Option<&Record>) -> Result<bool, StoreError> {
        // Compared and written under one lock: the only step that has to be atomic.
        let mut inside = self.inside.lock().unwrap_or_else(PoisonError::into_inner);
        let found = inside.rows.get(key).map_or(0, |(version, _)| *version);
        if found != seen {
            return Ok(false);
        }
        inside.last += 1;
        let row = next.map(|record| (inside.last, record.to_bytes()));
        match row {
            Some(row) => drop(inside.rows.insert(key.clone(), row)),
            None => drop(inside.rows.remove(key)),
        }
        Ok(true)
    }
}

/// In a real shop this fails now and then.
#[idempotent(key = order, with = executor, scope = "ship")]
async fn ship(executor: &Executor, order: &str, in_stock: bool) -> Result<String, Rejected> {
    if !in_stock {
        return Err(Rejected::OutOfStock);
    }
    Ok(format!("parcel for {order}"))
}

#[derive(Debug, thiserror::Error)]
enum Rejected {
    #[error("out of stock")]
    OutOfStock,
    #[error(transparent)]
    Idempotent(#[from] Rejection),
}

#[tokio::main]
async fn main() {
    let executor = Executor::new(Cas(Shelf { inside: Arc::default(), clock: Arc::new(SystemClock::new()) }));
    deliver(&executor, false, "nothing on the shelf").await;
    deliver(&executor, true, "the failure freed the key").await;
    deliver(&executor, true, "a duplicate gets the same parcel").await;
    let counts = executor.counts();
    assert_eq!((counts.of("released"), counts.of("ran"), counts.of("replayed")), (1, 1, 1));
}

async fn deliver(executor: &Executor, in_stock: bool, note: &str) {
    let (answer, outcome) = Outcome::capture(ship(executor, "o-17", in_stock)).await;
    let answer = answer.unwrap_or_else(|error| error.to_string());
    println!("{note}: {answer} ({})", outcome.map_or("no run", |outcome| outcome.name()));
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use idempotent_testkit::{
        CasSubject, Damage, DamageInjector, FaultStore, Subject, VirtualClock, cas_conformance, conformance,
    };

    use super::*;

    fn shelf() -> (Shelf, VirtualClock) {
        let clock = VirtualClock::new();
        (Shelf { inside: Arc::default(), clock: Arc::new(clock.clone()) }, clock)
    }

    fn backend() -> CasSubject {
        let (shelf, clock) = shelf();
        CasSubject::new(shelf).on_clock(clock)
    }

    /// The more it offers, the more is shown: a second client, lost replies, records that cannot be read.
    fn store() -> Subject {
        let (shelf, clock) = shelf();
        let store = FaultStore::new(Cas(shelf.clone()), &clock);
        Subject::new(store.clone()).second(Cas(shelf.clone())).losing(store).planting(shelf).on_clock(clock)
    }

    #[async_trait]
    impl DamageInjector for Shelf {
        /// Bytes are bytes.
        fn holds(&self, _: Damage) -> bool {
            true
        }

        async fn plant(&self, key: &Key, damage: Damage) {
            let mut inside = self.inside.lock().unwrap();
            inside.last += 1;
            let row = (inside.last, damage.to_bytes());
            inside.rows.insert(key.clone(), row);
        }

        async fn look(&self, key: &Key) -> Vec<u8> {
            self.inside.lock().unwrap().rows.get(key).map(|row| row.1.clone()).unwrap_or_default()
        }
    }

    #[test]
    fn a_handler_runs_on_it() {
        main();
    }

    // Both: the first sees the versions, which the second cannot see.
    cas_conformance!(the_shelf_swaps_as_it_should, backend());
    // What it does not have is said: those laws are listed as not shown.
    conformance!(the_shelf_keeps_the_laws, store(), without: [clients, batch, watch, search, purge, journal, order]);
}
