//! An estimate of a server's clock, for the fencing numbers of claims that are commands.
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Longest age of a reading. Two clocks drift apart by far less than a round trip in this time.
const MAX_AGE: Duration = Duration::from_secs(1);
/// Longest round trip for which a claim may be a command. The number is then less than 20 ms ahead of the server's clock, and
/// so is the end of the lease.
const MAX_ROUND_TRIP: Duration = Duration::from_millis(7);
/// Added to the estimate, for a command that takes longer than the ones before.
const MARGIN: Duration = Duration::from_micros(200);

/// The last reading of a server's clock. Only the monotonic clock of this machine is involved.
#[derive(Debug, Default)]
pub(crate) struct ClockEstimate(Mutex<Option<ClockReading>>);

#[derive(Clone, Copy, Debug)]
struct ClockReading {
    /// Server time in µs.
    time: u64,
    /// The time at which the command was sent. The server read its clock later.
    sent: Instant,
    /// The longest round trip of late.
    round_trip: Duration,
}

/// A fencing number for commands that are sent now.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct EstimatedNumber {
    pub(crate) number: u64,
    /// The longest time in µs by which the number is ahead of the server's clock, if the estimate is right.
    pub(crate) ahead: u64,
}

impl EstimatedNumber {
    /// Returns whether a record with this number has been written before the server's clock passed the number, and not
    /// longer before than estimated. `now` is the server time after the write.
    pub(crate) fn is_safe(self, now: u64) -> bool {
        (now..=now.saturating_add(self.ahead)).contains(&self.number)
    }
}

impl ClockEstimate {
    /// Stores the server time in a reply.
    pub(crate) fn learn(&self, time: u64, sent: Instant, received: Instant) {
        let mut reading = self.reading();
        let before = reading.map_or(Duration::ZERO, |reading| reading.round_trip);
        // The longest round trip counts for about ten replies.
        let round_trip = received.duration_since(sent).max(before - before / 8);
        *reading = Some(ClockReading { time, sent, round_trip });
    }

    /// Discards the reading, because the next connection may lead to another server.
    pub(crate) fn clear(&self) {
        *self.reading() = None;
    }

    /// Returns a number that the server's clock does not reach before it executes a command that is sent at `now`, unless
    /// this command takes longer than those before. Returns `None` without a recent reading, or if replies take too long.
    pub(crate) fn number(&self, now: Instant) -> Option<EstimatedNumber> {
        let ClockReading { sent, round_trip, .. } = (*self.reading())?;
        let is_usable = now.duration_since(sent) <= MAX_AGE && round_trip <= MAX_ROUND_TRIP;
        if is_usable { self.any_number(now) } else { None }
    }

    /// Returns a [`number`](Self::number), however old the reading is and however long replies take.
    pub(crate) fn any_number(&self, now: Instant) -> Option<EstimatedNumber> {
        let ClockReading { time, sent, round_trip } = (*self.reading())?;
        let age = now.duration_since(sent);
        let micros = |span: Duration| u64::try_from(span.as_micros()).unwrap_or(u64::MAX);
        // The server's clock is at most at `time + age` now, and at least a round trip before this.
        let margin = round_trip * 3 / 2 + MARGIN;
        let number = time.checked_add(micros(age))?.checked_add(micros(margin))?;
        Some(EstimatedNumber { number, ahead: micros(margin + round_trip) })
    }

    fn reading(&self) -> std::sync::MutexGuard<'_, Option<ClockReading>> {
        // No code panics while it holds this lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn learned(time: u64, round_trip: Duration) -> (ClockEstimate, Instant) {
        let (estimate, sent) = (ClockEstimate::default(), Instant::now());
        estimate.learn(time, sent, sent + round_trip);
        (estimate, sent)
    }

    #[test]
    fn a_number_is_ahead_of_every_time_at_which_the_server_can_be() {
        let (estimate, sent) = learned(5_000_000, MS);
        let EstimatedNumber { number, ahead } = estimate.number(sent + 10 * MS).unwrap();
        // The server read its clock between the sending and the reply, and executes the command up to a round trip later.
        for read_after in [0, 500, 1_000] {
            for executed_after in [0, 500, 1_000] {
                let clock = 5_000_000 + 10_000 - read_after + executed_after;
                assert!(EstimatedNumber { number, ahead }.is_safe(clock), "{number} at {clock}");
            }
        }
    }

    #[test]
    fn a_number_is_not_safe_once_the_clock_has_passed_it_and_not_far_ahead_of_the_clock() {
        let estimated = EstimatedNumber { number: 1_000, ahead: 10 };
        let safe = |now| estimated.is_safe(now);
        assert_eq!([989, 990, 1_000, 1_001].map(safe), [false, true, true, false]);
    }

    #[test]
    fn there_is_no_number_without_a_recent_reading() {
        let (estimate, sent) = learned(5_000_000, MS);
        assert!(estimate.number(sent + MAX_AGE).is_some());
        assert_eq!(estimate.number(sent + MAX_AGE + MS), None);
        estimate.clear();
        assert_eq!((estimate.number(sent), ClockEstimate::default().number(sent)), (None, None));
    }

    #[test]
    fn a_slow_reply_counts_for_several_replies() {
        let (estimate, sent) = learned(5_000_000, MAX_ROUND_TRIP + MS);
        assert_eq!(estimate.number(sent), None);
        estimate.learn(5_000_000, sent, sent);
        assert!(estimate.number(sent).unwrap().ahead > 15_000);
        for _ in 0..40 {
            estimate.learn(5_000_000, sent, sent);
        }
        assert!(estimate.number(sent).unwrap().ahead < 1_000);
    }
}
