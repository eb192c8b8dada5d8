//! Reproducible randomness.
use std::sync::{Arc, Mutex, PoisonError};

use idempotent_core::{Entropy, EntropyError};

/// An [`Entropy`] that returns the same bits for the same seed and order of calls. Clones share one sequence. For tests
/// only: with the seed, all owner tokens are known.
#[derive(Clone, Debug)]
pub struct SeededEntropy(Arc<Mutex<Dice>>);

impl SeededEntropy {
    /// Creates the sequence of this seed, at its start.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(Arc::new(Mutex::new(Dice::new(seed))))
    }
}

impl Entropy for SeededEntropy {
    fn bits(&self) -> Result<u128, EntropyError> {
        let mut dice = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(u128::from(dice.roll()) << 64 | u128::from(dice.roll()))
    }
}

/// The generator splitmix64: small, and well distributed for every seed, including 0.
#[derive(Clone, Debug)]
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a number below `n`, which must not be 0. The bias does not matter in tests.
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.roll() % n.max(1)
    }

    /// Returns a number in 0.0 .. 1.0.
    pub(crate) fn fraction(&mut self) -> f64 {
        // An f64 represents 53 bits exactly.
        #[allow(clippy::cast_precision_loss)]
        let fraction = (self.roll() >> 11) as f64 / (1_u64 << 53) as f64;
        fraction
    }
}
