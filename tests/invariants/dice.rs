//! The one source of chance of a simulation: a seed, and forks of it.

/// splitmix64.
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Another sequence, the same for the same seed and name.
    pub fn fork(seed: u64, name: u64) -> Self {
        let mut dice = Self(seed ^ name.wrapping_mul(0xd6e8_feb8_6659_fd93));
        dice.roll();
        Self(dice.roll())
    }

    pub fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// `from..=to`.
    pub fn range(&mut self, from: u64, to: u64) -> u64 {
        from + self.roll() % (to - from + 1)
    }

    pub fn percent(&mut self, chance: u64) -> bool {
        self.range(0, 99) < chance
    }

    pub fn pick<T: Clone>(&mut self, of: &[T]) -> T {
        of[usize::try_from(self.roll() % of.len() as u64).unwrap()].clone()
    }
}
