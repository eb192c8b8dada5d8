//! Exponential backoff with jitter.
use std::time::Duration;

/// Returns `first`, doubled `doublings` times up to `max`, with a jitter of ±`jitter` percent from the random `bits`.
#[must_use]
pub fn delay(first: Duration, max: Duration, doublings: u32, jitter: u8, bits: u128) -> Duration {
    let grown = first.saturating_mul(2u32.saturating_pow(doublings.min(31))).min(max);
    // -100 % to +100 % of the jitter, in steps of 0.1 %.
    let step = u32::try_from(bits % 2001).unwrap_or_default();
    let spread = grown / 100 * u32::from(jitter.min(100));
    let lowest = grown.saturating_sub(spread);
    lowest.saturating_add(spread / 1000 * step).max(Duration::from_millis(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delay_doubles_up_to_its_maximum_and_is_spread_by_its_jitter() {
        let (first, max) = (Duration::from_secs(1), Duration::from_secs(10));
        let grown = |doublings| delay(first, max, doublings, 0, 0).as_secs();
        assert_eq!([0, 1, 2, 3, 4, 100].map(grown), [1, 2, 4, 8, 10, 10]);
        let spread = |bits| delay(first, max, 9, 20, bits).as_millis();
        assert_eq!([0, 1000, 2000].map(spread), [8_000, 10_000, 12_000]);
        assert!((0..5_000).all(|bits| (8_000..=12_000).contains(&spread(bits))));
    }

    #[test]
    fn extreme_delays_do_not_overflow() {
        let longest = delay(Duration::MAX, Duration::MAX, u32::MAX, 100, u128::MAX);
        assert!(longest > Duration::from_secs(u64::from(u32::MAX)));
        assert_eq!(delay(Duration::ZERO, Duration::ZERO, 0, 100, 0), Duration::from_millis(1));
    }
}
