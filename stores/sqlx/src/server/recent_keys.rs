//! Keys that are expected to have a record. A claim of such a key reads the record first, so a duplicate costs one read by key.
use std::fmt;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

use idempotent_core::{Claim, Key};

/// The maximum number of remembered keys. A forgotten key is claimed like a new key, which is correct and costs slightly more.
const SLOTS: usize = 4_096;
/// After this number of consecutive consumed keys, the next key is expected to be consumed as well, e.g. after a restart or
/// during a redelivery of all messages.
const MANY: i32 = 8;

/// The keys that this process has claimed recently.
pub(crate) struct RecentKeys {
    /// The low half of a key's hash. The high half selects the slot.
    slots: Box<[AtomicU64]>,
    consumed: AtomicI32,
}

impl RecentKeys {
    pub(crate) fn new() -> Self {
        Self { slots: (0..SLOTS).map(|_| AtomicU64::new(0)).collect(), consumed: AtomicI32::new(0) }
    }

    pub(crate) fn expects_a_record(&self, key: &Key) -> bool {
        let (slot, low) = self.place(key);
        slot.load(Ordering::Relaxed) == low || self.consumed.load(Ordering::Relaxed) >= MANY
    }

    /// Records that the key has a record, with the answer to its claim.
    pub(crate) fn saw(&self, key: &Key, answer: &Claim) {
        let (slot, low) = self.place(key);
        slot.store(low, Ordering::Relaxed);
        match answer {
            // The counter stays close to `MANY`, so it cannot overflow.
            Claim::Consumed(_) if self.consumed.load(Ordering::Relaxed) < MANY => {
                self.consumed.fetch_add(1, Ordering::Relaxed);
            }
            Claim::Acquired(_) => self.consumed.store(0, Ordering::Relaxed),
            _ => {}
        }
    }

    /// Forgets a key whose record was deleted.
    pub(crate) fn forget(&self, key: &Key) {
        let (slot, low) = self.place(key);
        let _ = slot.compare_exchange(low, 0, Ordering::Relaxed, Ordering::Relaxed);
    }

    fn place(&self, key: &Key) -> (&AtomicU64, u64) {
        let bytes = key.hash().to_be_bytes();
        let half = |at: usize| bytes[at..at + 8].iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte));
        // The remainder is less than the number of slots.
        (&self.slots[(half(0) % SLOTS as u64) as usize], half(8))
    }
}

impl fmt::Debug for RecentKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Lately")
    }
}
