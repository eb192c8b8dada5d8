//! Which entries this source has handed over and not settled.
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// After an outage longer than `min_idle` a search finds what this very consumer holds. That is not handed over twice.
#[derive(Clone, Debug, Default)]
pub(crate) struct HeldEntries(Arc<Mutex<HeldIds>>);

#[derive(Debug, Default)]
struct HeldIds {
    /// Each with the number under which it was handed over.
    held: HashMap<String, u64>,
    last: u64,
}

impl HeldEntries {
    /// The number under which it is held.
    pub(crate) fn hold(&self, id: &str) -> u64 {
        let mut ids = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        ids.last += 1;
        let number = ids.last;
        ids.held.insert(id.to_owned(), number);
        number
    }

    pub(crate) fn has(&self, id: &str) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).held.contains_key(id)
    }

    /// One that was handed over again since then stays held.
    pub(crate) fn release(&self, id: &str, number: u64) {
        let mut ids = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if ids.held.get(id) == Some(&number) {
            ids.held.remove(id);
        }
    }
}
