//! Reproducible random numbers.
use std::time::Duration;

use idempotent::store::Entropy;
use idempotent_testkit::SeededEntropy;

/// The same throws for the same seed and name.
#[derive(Debug)]
pub(crate) struct Dice(SeededEntropy);

impl Dice {
    pub(crate) fn new(seed: u64, name: u64) -> Self {
        Self(SeededEntropy::new(seed ^ name.wrapping_mul(0xd6e8_feb8_6659_fd93)))
    }

    pub(crate) fn below(&self, end: u64) -> u64 {
        // Seeded: it always has bits.
        let bits = self.0.bits().unwrap_or_default() >> 64;
        u64::try_from(bits % u128::from(end.max(1))).unwrap_or_default()
    }

    /// Returns a number in `from..=to`.
    pub(crate) fn range(&self, from: u64, to: u64) -> u64 {
        from + self.below(to - from + 1)
    }

    pub(crate) fn percent(&self, chance: u64) -> bool {
        self.below(100) < chance
    }

    pub(crate) fn ms(&self, from: u64, to: u64) -> Duration {
        Duration::from_millis(self.range(from, to))
    }

    pub(crate) fn pick<T: Copy>(&self, of: &[T]) -> Option<T> {
        usize::try_from(self.below(of.len() as u64)).ok().and_then(|place| of.get(place)).copied()
    }
}
