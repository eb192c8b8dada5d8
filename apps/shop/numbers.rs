//! An observer that counts the outcomes of requests by key.
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use idempotent::http::Caller;
use idempotent::observe::RunInfo;
use idempotent::{Event, Executor, IdempotencyKey, Identity, Observer, Outcome, Scene};
use serde::Serialize;

/// The counters of recent keys. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct KeyCounters(Arc<Mutex<RecentKeys>>);

/// Two generations of counters. The older one is dropped when the younger one is full.
#[derive(Debug, Default)]
struct RecentKeys {
    /// Counts by the 128-bit hash of the key, as in the store.
    young: HashMap<u128, KeyCounts>,
    old: HashMap<u128, KeyCounts>,
}

const MAX_KEYS: usize = 10_000;

/// The counters of one key.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct KeyCounts {
    /// Runs that began.
    executions: u64,
    /// Responses from the record.
    replays: u64,
    /// Rejections with 409.
    conflicts: u64,
    /// Rejections because the key was used for a different request.
    mismatches: u64,
}

impl Observer for KeyCounters {
    fn on(&self, run: &RunInfo<'_>, event: &Event<'_>) {
        let Some(key) = run.key else { return };
        let count: fn(&mut KeyCounts) -> &mut u64 = match event {
            Event::Claimed { .. } => |of| &mut of.executions,
            Event::Ended { outcome, .. } => match outcome {
                Outcome::Replayed | Outcome::ConsumedWithoutResult => |of| &mut of.replays,
                Outcome::InFlight { .. } | Outcome::Delayed { .. } | Outcome::Duplicate => |of| &mut of.conflicts,
                Outcome::Mismatch => |of| &mut of.mismatches,
                _ => return,
            },
            _ => return,
        };
        *count(self.locked().of(key.hash())) += 1;
    }
}

impl KeyCounters {
    /// Returns the counters of an order with this key. The identity matches the one that the layer builds.
    pub(crate) fn of(&self, executor: &Executor, caller: &Caller, key: &IdempotencyKey) -> KeyCounts {
        let identity = Identity::new(Scene::Rest, "POST /orders", key.as_str().as_bytes()).tenant(caller);
        let recent = self.locked();
        let found = identity.key(executor.namespace()).ok().and_then(|key| {
            let hash = key.hash();
            recent.young.get(&hash).or_else(|| recent.old.get(&hash)).copied()
        });
        found.unwrap_or_default()
    }

    fn locked(&self) -> MutexGuard<'_, RecentKeys> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RecentKeys {
    fn of(&mut self, hash: u128) -> &mut KeyCounts {
        if self.young.len() >= MAX_KEYS {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.entry(hash).or_insert_with(|| self.old.remove(&hash).unwrap_or_default())
    }
}
