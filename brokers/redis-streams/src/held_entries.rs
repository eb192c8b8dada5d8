//! The entries that this source has delivered and that are not yet settled.
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Held entries. After an outage longer than `min_idle`, a search finds entries that this consumer still holds. They
/// must not be delivered twice.
#[derive(Clone, Debug, Default)]
pub(crate) struct HeldEntries(Arc<Mutex<HeldIds>>);

#[derive(Debug, Default)]
struct HeldIds {
    /// Entry ids, each with the number of its delivery.
    held: HashMap<String, u64>,
    last: u64,
}

impl HeldEntries {
    /// Records a delivery and returns its number.
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

    /// Releases an entry, unless it was delivered again since.
    pub(crate) fn release(&self, id: &str, number: u64) {
        let mut ids = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if ids.held.get(id) == Some(&number) {
            ids.held.remove(id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_an_earlier_delivery_does_not_release_an_entry() {
        let held = HeldEntries::default();
        let (first, second) = (held.hold("1-0"), held.hold("1-0"));
        held.release("1-0", first);
        assert!(held.has("1-0"));
        held.release("1-0", second);
        assert!(!held.has("1-0"));
    }
}
