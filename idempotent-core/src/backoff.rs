//! Delays that grow and are spread.
use std::time::Duration;

/// `first` doubled `times` times, at most `most`, spread by `jitter` percent up and down. `bits` are random.
pub(crate) fn delay(first: Duration, most: Duration, times: u32, jitter: u8, bits: u128) -> Duration {
    let grown = first.saturating_mul(2u32.saturating_pow(times.min(31))).min(most);
    // -100 % … +100 % of the jitter, in steps of 0.1 %.
    let step = u32::try_from(bits % 2001).unwrap_or_default();
    let spread = grown * u32::from(jitter) / 100;
    let lowest = grown.saturating_sub(spread);
    (lowest + spread.saturating_mul(step) / 1000).max(Duration::from_millis(1))
}
