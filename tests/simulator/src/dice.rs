//! Random numbers from a seed.
use super::plan::Terms;

/// Creates another sequence, which is the same for the same seed and name.
pub(crate) fn fork(seed: u64, name: u64) -> Dice {
    let mut dice = Dice::new(seed ^ name.wrapping_mul(0xd6e8_feb8_6659_fd93));
    dice.roll();
    Dice::new(dice.roll())
}

/// The generator splitmix64: small, and well distributed for every seed, including 0.
#[derive(Clone, Debug)]
pub(crate) struct Dice(u64);

impl Dice {
    fn new(seed: u64) -> Self {
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

    /// Returns a number in `from..=to`.
    pub(crate) fn range(&mut self, from: u64, to: u64) -> u64 {
        from + self.below(to - from + 1)
    }

    /// Returns a number from 0 to 1, without 1.
    #[allow(clippy::cast_precision_loss, reason = "53 bits fit")]
    pub(crate) fn unit(&mut self) -> f64 {
        (self.roll() >> 11) as f64 / (1_u64 << 53) as f64
    }

    pub(crate) fn percent(&mut self, chance: u64) -> bool {
        self.below(100) < chance
    }

    pub(crate) fn pick<T: Clone>(&mut self, of: &[T]) -> T {
        of[usize::try_from(self.below(of.len() as u64)).unwrap_or_default()].clone()
    }

    pub(crate) fn place(&mut self, workers: &[Terms]) -> usize {
        usize::try_from(self.below(workers.len() as u64)).unwrap_or_default()
    }

    /// Returns a random part of `of`, up to the fraction `part`.
    pub(crate) fn part(&mut self, of: u64, part: f64) -> u64 {
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss)]
        let most = (of as f64 * part) as u64;
        self.range(most / 2, most)
    }
}
