//! The delay levels of a broker.
use std::fmt;
use std::time::Duration;

use crate::SettingError;

/// The default of the broker's setting `messageDelayLevel`.
const DEFAULT: &str = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h";

/// The delays of a broker. The first one is level 1.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct DelayLevels(Vec<Duration>);

/// A delay level of a broker, or level 0 for no delay.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct DelayLevel {
    pub(crate) number: i32,
    pub(crate) delay: Duration,
}

impl Default for DelayLevels {
    fn default() -> Self {
        Self::parse(DEFAULT).unwrap_or(Self(vec![Duration::from_secs(1)]))
    }
}

impl DelayLevels {
    /// Parses the format of the broker's setting: `1s 5s 10s`.
    pub(crate) fn parse(levels: &str) -> Result<Self, SettingError> {
        let all: Option<Vec<_>> = levels.split_whitespace().map(parse_delay).collect();
        match all {
            Some(all) if !all.is_empty() => Ok(Self(all)),
            _ => Err(SettingError::new(
                "delay levels: not a list of numbers with the units s, m, h or d; copy the broker's `messageDelayLevel`, \
                 such as `1s 5s 10s 1m`",
            )),
        }
    }

    /// Returns the level with the shortest delay that is not shorter than `delay`, or `None` if all levels are shorter.
    pub(crate) fn sufficient(&self, delay: Duration) -> Option<DelayLevel> {
        if delay.is_zero() {
            return Some(DelayLevel::default());
        }
        self.levels().filter(|level| level.delay >= delay).min_by_key(|level| level.delay)
    }

    /// Returns the sufficient level, or the longest one if none is sufficient. The consumer splits longer delays of retries.
    pub(crate) fn for_retry(&self, delay: Duration) -> DelayLevel {
        let longest = || self.levels().max_by_key(|level| level.delay);
        self.sufficient(delay).or_else(longest).unwrap_or_default()
    }

    pub(crate) fn longest(&self) -> Duration {
        self.0.iter().max().copied().unwrap_or_default()
    }

    /// Returns the largest difference between two neighbouring levels, the first of which is no delay. A delay up to the
    /// longest level is lengthened by less than this.
    pub(crate) fn largest_gap(&self) -> Duration {
        let mut delays = self.0.clone();
        delays.push(Duration::ZERO);
        delays.sort();
        delays.windows(2).map(|two| two[1] - two[0]).max().unwrap_or_default()
    }

    fn levels(&self) -> impl Iterator<Item = DelayLevel> {
        (1..).zip(self.0.iter()).map(|(number, delay)| DelayLevel { number, delay: *delay })
    }
}

/// Writes the format of the broker's setting.
impl fmt::Display for DelayLevels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, delay) in self.0.iter().enumerate() {
            let space = if at == 0 { "" } else { " " };
            let seconds = delay.as_secs();
            let (divisor, unit) =
                *UNITS.iter().rev().find(|(divisor, _)| seconds.is_multiple_of(*divisor)).unwrap_or(&UNITS[0]);
            write!(f, "{space}{}{unit}", seconds / divisor)?;
        }
        Ok(())
    }
}

/// Units of delays with their seconds, shortest first.
const UNITS: [(u64, &str); 4] = [(1, "s"), (60, "m"), (3_600, "h"), (86_400, "d")];

fn parse_delay(text: &str) -> Option<Duration> {
    let (number, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let (factor, _) = UNITS.iter().find(|(_, name)| *name == unit)?;
    let seconds = number.parse::<u64>().ok()?.checked_mul(*factor)?;
    (seconds > 0).then_some(Duration::from_secs(seconds))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn secs(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_delay_is_rounded_up_to_a_level_never_down() {
        let levels = DelayLevels::default();
        for (ms, level) in [(0, 0), (1, 1), (1_000, 1), (1_001, 2), (600_000, 14), (600_001, 15), (7_200_000, 18)] {
            let delay = Duration::from_millis(ms);
            assert_eq!(levels.sufficient(delay).unwrap().number, level, "{ms} ms");
            assert_eq!(levels.for_retry(delay).number, level, "{ms} ms");
        }
        assert_eq!(levels.longest(), secs(7_200));
    }

    #[test]
    fn no_level_is_sufficient_for_a_delay_above_the_longest_and_a_retry_gets_the_longest() {
        let levels = DelayLevels::default();
        let longer = levels.longest() + Duration::from_nanos(1);
        assert_eq!(levels.sufficient(longer), None);
        assert_eq!(levels.for_retry(longer), DelayLevel { number: 18, delay: secs(7_200) });
    }

    #[test]
    fn levels_may_have_any_order() {
        let levels = DelayLevels::parse("10s 1s  2m").unwrap();
        assert_eq!(levels.sufficient(secs(2)), Some(DelayLevel { number: 1, delay: secs(10) }));
        assert_eq!(levels.sufficient(Duration::from_millis(10)), Some(DelayLevel { number: 2, delay: secs(1) }));
        assert_eq!((levels.longest(), levels.largest_gap()), (secs(120), secs(110)));
        for bad in ["", "5", "s", "0s", "1y", "1s,2s", "99999999999999999999d", "1ü"] {
            assert!(DelayLevels::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_largest_gap_includes_the_one_between_no_delay_and_the_first_level() {
        for (levels, gap) in [(DEFAULT, 3_600), ("1h", 3_600), ("10s 12s", 10), ("30s 1s", 29)] {
            assert_eq!(DelayLevels::parse(levels).unwrap().largest_gap(), secs(gap), "{levels}");
        }
    }

    #[test]
    fn levels_are_displayed_as_the_brokers_setting() {
        assert_eq!(DelayLevels::default().to_string(), DEFAULT);
        assert_eq!(DelayLevels::parse("90s 48h").unwrap().to_string(), "90s 2d");
    }
}
