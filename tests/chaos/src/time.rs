//! One clock for all processes of the machine.
use rustix::time::{ClockId, clock_gettime};

/// `CLOCK_MONOTONIC` in ns. The standard library's `Instant` reads the same clock, but does not say what it read.
pub(crate) fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    // Counted from the machine's start: neither is negative.
    u64::try_from(time.tv_sec).unwrap_or_default() * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or_default()
}
