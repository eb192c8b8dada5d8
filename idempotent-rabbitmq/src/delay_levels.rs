//! The delay levels of retries. A fixed number of levels limits the number of queues.
use std::time::Duration;

/// The levels in ms. The longest is a day.
const STEPS: [u64; 21] = [
    100, 200, 500, 1_000, 2_000, 3_000, 5_000, 10_000, 20_000, 30_000, 60_000, 120_000, 300_000, 600_000, 1_200_000,
    1_800_000, 3_600_000, 7_200_000, 14_400_000, 28_800_000, LONGEST_MS,
];
const LONGEST_MS: u64 = 86_400_000;
/// The longest delay of one level. The consumer splits longer delays.
pub(crate) const LONGEST: Duration = Duration::from_millis(LONGEST_MS);

/// Returns the shortest level that is not shorter than the delay, in ms.
pub(crate) fn step(after: Duration) -> u64 {
    STEPS.into_iter().find(|step| Duration::from_millis(*step) >= after).unwrap_or(LONGEST_MS)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_delay_is_rounded_up_never_down_and_at_most_trebled() {
        for (asked, ms) in [(0, 100), (100, 100), (101, 200), (999, 1_000), (1_001, 2_000), (3_600_001, 7_200_000)] {
            assert_eq!(step(Duration::from_millis(asked)), ms);
        }
        assert_eq!(step(Duration::from_nanos(100_000_001)), 200);
        assert_eq!(step(LONGEST), 86_400_000);
        assert!(STEPS.windows(2).all(|pair| pair[0] < pair[1] && pair[1] <= pair[0] * 3));
    }
}
