//! What became of requests, by key, as an observer of the executor.
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use idempotent::{Caller, Event, Executor, IdempotencyKey, Identity, Observer, Outcome, Run, Scene};
use serde::Serialize;

/// Cheap to clone: clones count together.
#[derive(Clone, Debug, Default)]
pub(crate) struct Numbers(Arc<Mutex<Recent>>);

/// Keys are many: the older half of those that were counted is forgotten at times.
#[derive(Debug, Default)]
struct Recent {
    /// By hashes of 128 bits, the same the store goes by.
    young: HashMap<u128, OfKey>,
    old: HashMap<u128, OfKey>,
}

const KEYS: usize = 10_000;

/// Of one key.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct OfKey {
    /// Runs begun.
    executions: u64,
    /// Answered from the record.
    replays: u64,
    /// Told to come back later.
    conflicts: u64,
    /// Refused: the key was used for another request.
    mismatches: u64,
}

impl Observer for Numbers {
    fn on(&self, run: &Run<'_>, event: &Event<'_>) {
        let Some(key) = run.key else { return };
        let count: fn(&mut OfKey) -> &mut u64 = match event {
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

impl Numbers {
    /// Those of an order with this key: the identity is the one the layer makes of it.
    pub(crate) fn of(&self, executor: &Executor, caller: &Caller, key: &IdempotencyKey) -> OfKey {
        let identity = Identity::new(Scene::Rest, "POST /orders", key.as_str().as_bytes()).tenant(caller);
        let recent = self.locked();
        let found = identity.key(executor.namespace()).ok().and_then(|key| {
            let hash = key.hash();
            recent.young.get(&hash).or_else(|| recent.old.get(&hash)).copied()
        });
        found.unwrap_or_default()
    }

    fn locked(&self) -> MutexGuard<'_, Recent> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Recent {
    fn of(&mut self, hash: u128) -> &mut OfKey {
        if self.young.len() >= KEYS {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.entry(hash).or_insert_with(|| self.old.remove(&hash).unwrap_or_default())
    }
}
