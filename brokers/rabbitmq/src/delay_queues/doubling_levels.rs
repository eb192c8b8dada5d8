//! Levels with doubling delays, whose sums are the delays of messages.
use std::time::Duration;

/// The shortest level, and the unit to which delays are rounded up.
const UNIT_MS: u64 = 100;
/// Number of levels. Each level is twice as long as the previous one.
const LEVELS: u32 = 32;
/// The sum of all levels: 13 years.
pub(super) const MAX_DELAY: Duration = Duration::from_millis(UNIT_MS * ((1 << LEVELS) - 1));

/// Splits a delay into levels in ms, longest first. The sum of the levels is the delay, rounded up to the next 100 ms.
/// A delay above [`MAX_DELAY`] has the levels of [`MAX_DELAY`].
pub(super) fn split_delay(delay: Duration) -> Vec<u64> {
    let units = delay.min(MAX_DELAY).as_nanos().div_ceil(u128::from(UNIT_MS) * 1_000_000);
    (0..LEVELS).rev().filter(|level| units & (1 << level) != 0).map(|level| UNIT_MS << level).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_levels_of_a_delay_are_never_shorter_and_less_than_a_unit_longer() {
        let day = Duration::from_secs(24 * 3_600);
        let odd = (0..38).map(|n| Duration::from_nanos(1 + n * n * n * 7_777_777_777_777));
        for delay in odd.chain([Duration::from_millis(100), day, day * 40 + Duration::from_nanos(1), MAX_DELAY]) {
            let levels = split_delay(delay);
            let sum = Duration::from_millis(levels.iter().sum());
            assert!(sum >= delay && sum - delay < Duration::from_millis(UNIT_MS), "{delay:?} {levels:?}");
            assert!(
                levels.windows(2).all(|pair| pair[0] > pair[1]),
                "a message passes each queue one time: {levels:?}"
            );
        }
        assert_eq!(split_delay(Duration::from_secs(1_800)), [1_638_400, 102_400, 51_200, 6_400, 1_600]);
        assert_eq!(split_delay(Duration::from_millis(101)), [200]);
        assert!(split_delay(Duration::ZERO).is_empty());
    }
}
