//! The delay levels of retries. Each level needs a queue, so the levels are few.
use std::time::Duration;

/// All levels in ms. The longest level is a day.
const LEVELS: [u64; 21] = [
    100,
    200,
    500,
    1_000,
    2_000,
    3_000,
    5_000,
    10_000,
    20_000,
    30_000,
    60_000,
    120_000,
    300_000,
    600_000,
    1_200_000,
    1_800_000,
    3_600_000,
    7_200_000,
    14_400_000,
    28_800_000,
    MAX_DELAY_MS,
];
const MAX_DELAY_MS: u64 = 86_400_000;
/// The longest level. The consumer splits longer delays.
pub(crate) const MAX_DELAY: Duration = Duration::from_millis(MAX_DELAY_MS);

/// Returns the shortest level that is not shorter than `after`, in ms, or the longest level if all levels are shorter.
pub(crate) fn sufficient_ms(after: Duration) -> u64 {
    LEVELS.into_iter().find(|level| Duration::from_millis(*level) >= after).unwrap_or(MAX_DELAY_MS)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_delay_is_rounded_up_to_at_most_three_times_its_length() {
        for (asked, ms) in [(0, 100), (100, 100), (101, 200), (999, 1_000), (1_001, 2_000), (3_600_001, 7_200_000)] {
            assert_eq!(sufficient_ms(Duration::from_millis(asked)), ms);
        }
        assert_eq!(sufficient_ms(Duration::from_nanos(100_000_001)), 200);
        assert_eq!(sufficient_ms(MAX_DELAY), 86_400_000);
        assert!(LEVELS.windows(2).all(|pair| pair[0] < pair[1] && pair[1] <= pair[0] * 3));
    }
}
