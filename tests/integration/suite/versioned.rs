//! A map whose rows have versions: what a backend that compares and swaps is made of.
use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use idempotent::store::{Record, Version, VersionedRecord};
use idempotent::{Key, Timestamp};

/// Records with versions for the whole map.
#[derive(Debug, Default)]
pub(crate) struct Versioned {
    rows: Mutex<HashMap<Key, (Version, Record)>>,
    versions: AtomicU64,
}

impl Versioned {
    /// Returns what is there; each swap is a microsecond of the store's time.
    pub(crate) fn read(&self, key: &Key) -> VersionedRecord {
        let row = self.rows.lock().unwrap().get(key).cloned();
        let now = Timestamp(1_000_000 + self.versions.load(SeqCst));
        VersionedRecord { version: row.as_ref().map_or(0, |row| row.0), record: row.map(|row| row.1), now }
    }

    pub(crate) fn remove(&self, key: &Key) {
        self.rows.lock().unwrap().remove(key);
    }

    pub(crate) fn swap(&self, key: &Key, seen: Version, next: Option<&Record>) -> bool {
        let mut rows = self.rows.lock().unwrap();
        if rows.get(key).map_or(0, |row| row.0) != seen {
            return false;
        }
        match next {
            Some(next) => rows.insert(key.clone(), (self.versions.fetch_add(1, SeqCst) + 1, next.clone())),
            None => rows.remove(key),
        };
        true
    }
}
