//! The levels whose sum is a delay.
use std::time::Duration;

/// The shortest level, and the step by which delays are rounded up.
const UNIT_MS: u64 = 100;
/// The number of levels. Each level is twice as long as the one before it.
const LEVELS: u32 = 32;
/// The sum of all levels: 13 years.
pub(crate) const LONGEST: Duration = Duration::from_millis(UNIT_MS * ((1 << LEVELS) - 1));

/// Returns the levels of a delay in ms, longest first. Their sum is the delay, rounded up to the next 100 ms. A delay above
/// [`LONGEST`] has the levels of [`LONGEST`].
pub(super) fn levels(delay: Duration) -> Vec<u64> {
    let units = delay.min(LONGEST).as_nanos().div_ceil(u128::from(UNIT_MS) * 1_000_000);
    (0..LEVELS).rev().filter(|level| units & (1 << level) != 0).map(|level| UNIT_MS << level).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_levels_of_a_delay_are_never_shorter_and_less_than_a_unit_longer() {
        let day = Duration::from_secs(24 * 3_600);
        let odd = (0..38).map(|n| Duration::from_nanos(1 + n * n * n * 7_777_777_777_777));
        for delay in odd.chain([Duration::from_millis(100), day, day * 40 + Duration::from_nanos(1), LONGEST]) {
            let levels = levels(delay);
            let sum = Duration::from_millis(levels.iter().sum());
            assert!(sum >= delay && sum - delay < Duration::from_millis(UNIT_MS), "{delay:?} {levels:?}");
            assert!(levels.windows(2).all(|pair| pair[0] > pair[1]), "a message passes a queue once: {levels:?}");
        }
        assert_eq!(levels(Duration::from_secs(1_800)), [1_638_400, 102_400, 51_200, 6_400, 1_600]);
        assert_eq!(levels(Duration::from_millis(101)), [200]);
        assert!(levels(Duration::ZERO).is_empty());
    }
}
