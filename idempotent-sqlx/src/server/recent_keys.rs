//! Which keys are expected to have a record: those are looked at first, which costs a duplicate one read by its key.
use std::fmt;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

use idempotent_core::{Claim, Key};

/// Keys remembered, at most. A process that has seen more claims a key of an older one as if it were new, which is right
/// as well and costs a little more.
const SLOTS: usize = 4_096;
/// So many consumed keys in a row, and the next is expected to be one as well: as after a restart, or behind a broker
/// that delivers all once more.
const MANY: i32 = 8;

/// What this process has seen lately.
pub(crate) struct RecentKeys {
    /// The low half of a key's hash, in the place that its high half says.
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

    /// The key has a record: this was said of it.
    pub(crate) fn saw(&self, key: &Key, answer: &Claim) {
        let (slot, low) = self.place(key);
        slot.store(low, Ordering::Relaxed);
        match answer {
            // Never much above, so that it cannot overflow.
            Claim::Consumed(_) if self.consumed.load(Ordering::Relaxed) < MANY => {
                self.consumed.fetch_add(1, Ordering::Relaxed);
            }
            Claim::Acquired(_) => self.consumed.store(0, Ordering::Relaxed),
            _ => {}
        }
    }

    /// Its record was deleted.
    pub(crate) fn forget(&self, key: &Key) {
        let (slot, low) = self.place(key);
        let _ = slot.compare_exchange(low, 0, Ordering::Relaxed, Ordering::Relaxed);
    }

    fn place(&self, key: &Key) -> (&AtomicU64, u64) {
        let bytes = key.hash().to_be_bytes();
        let half = |at: usize| bytes[at..at + 8].iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte));
        // A remainder of their number.
        (&self.slots[(half(0) % SLOTS as u64) as usize], half(8))
    }
}

impl fmt::Debug for RecentKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Lately")
    }
}
