//! The load of a fleet: the rate of new keys over time, and the copies that a broker delivers later.
use super::clock::{DAY, HOUR, MINUTE, SECOND};
use crate::dice::Dice;

/// The rate of new keys over time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum LoadShape {
    Constant,
    /// A sine between 0.2 and 1.8 with a period of a day.
    DailyWave,
    /// Ten times the rate from this time on.
    Step(u64),
    /// Fifty times the rate for ten minutes from this time on.
    Burst(u64),
}

impl LoadShape {
    /// Returns the rate at `now`, relative to the base.
    pub(super) fn factor(self, now: u64) -> f64 {
        match self {
            Self::DailyWave => 1.0 + 0.8 * (now as f64 / DAY as f64 * std::f64::consts::TAU).sin(),
            Self::Step(from) if now >= from => 10.0,
            Self::Burst(from) if (from..from + 10 * MINUTE).contains(&now) => 50.0,
            Self::Constant | Self::Step(_) | Self::Burst(_) => 1.0,
        }
    }

    /// Returns the time until the next message. `rate` is the base, per second. The pause never crosses a whole minute,
    /// so that a change of the rate takes effect within a minute; the second value is false at the minute.
    pub(super) fn pause(self, now: u64, rate: f64, dice: &mut Dice) -> (u64, bool) {
        let mean = SECOND as f64 / (rate * self.factor(now));
        let pause = (-(1.0 - dice.unit()).ln() * mean) as u64;
        let minute = MINUTE - now % MINUTE;
        // An exponential pause has no memory, so drawing again at the minute keeps the distribution.
        if pause < minute { (pause, true) } else { (minute, false) }
    }
}

/// Returns the time after which the broker delivers a second copy of a message, if it does: 0.5 % within 1 s, 1 %
/// within 1 min, 0.5 % within 6 h, each `times` as often.
pub(super) fn copy_after(dice: &mut Dice, times: u64) -> Option<u64> {
    let drawn = dice.below(1_000);
    let within = [(5, SECOND), (15, MINUTE), (20, 6 * HOUR)];
    let (_, longest) = within.into_iter().find(|(limit, _)| drawn < limit * times)?;
    Some(dice.range(1, longest))
}

/// Returns a duration from five quantiles (0, 50, 90, 99, 100 %), in between by interpolation.
pub(super) fn from_quantiles(quantiles: [u64; 5], dice: &mut Dice) -> u64 {
    const PLACES: [f64; 5] = [0.0, 0.5, 0.9, 0.99, 1.0];
    let drawn = dice.unit();
    let upper = PLACES.iter().position(|place| drawn < *place).unwrap_or(4).max(1);
    let (from, to) = (quantiles[upper - 1] as f64, quantiles[upper] as f64);
    let part = (drawn - PLACES[upper - 1]) / (PLACES[upper] - PLACES[upper - 1]);
    (from + (to - from) * part) as u64
}
