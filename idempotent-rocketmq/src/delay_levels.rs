//! The delay levels of a broker.
use std::time::Duration;

use crate::SettingError;

/// The default of the broker's setting `messageDelayLevel`.
const DEFAULT: &str = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h";

/// The delays of a broker. The first one is level 1.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct DelayLevels(Vec<Duration>);

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

    /// Returns the level of the shortest sufficient delay, or of the longest delay if none is sufficient. Returns 0 for no
    /// delay.
    pub(crate) fn level(&self, after: Duration) -> i32 {
        if after.is_zero() {
            return 0;
        }
        let sufficient = self.numbered().filter(|(_, delay)| *delay >= after).min_by_key(|(_, delay)| *delay);
        let chosen = sufficient.or_else(|| self.numbered().max_by_key(|(_, delay)| *delay));
        chosen.map_or(0, |(level, _)| level)
    }

    pub(crate) fn longest(&self) -> Duration {
        self.0.iter().max().copied().unwrap_or_default()
    }

    fn numbered(&self) -> impl Iterator<Item = (i32, Duration)> {
        (1..).zip(self.0.iter().copied())
    }
}

fn parse_delay(text: &str) -> Option<Duration> {
    let (number, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let unit = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3_600,
        "d" => 86_400,
        _ => return None,
    };
    let seconds = number.parse::<u64>().ok()?.checked_mul(unit)?;
    (seconds > 0).then_some(Duration::from_secs(seconds))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_delay_is_rounded_up_to_a_level_never_down() {
        let levels = DelayLevels::default();
        for (ms, level) in [(0, 0), (1, 1), (1_000, 1), (1_001, 2), (600_000, 14), (600_001, 15), (7_200_000, 18)] {
            assert_eq!(levels.level(Duration::from_millis(ms)), level, "{ms} ms");
        }
        assert_eq!(levels.level(Duration::from_secs(7_201)), 18, "longer than the longest");
        assert_eq!(levels.longest(), Duration::from_secs(7_200));
    }

    #[test]
    fn levels_may_have_any_order() {
        let levels = DelayLevels::parse("10s 1s  2m").unwrap();
        assert_eq!((levels.level(Duration::from_secs(2)), levels.level(Duration::from_millis(10))), (1, 2));
        assert_eq!(levels.longest(), Duration::from_secs(120));
        for bad in ["", "5", "s", "0s", "1y", "1s,2s", "99999999999999999999d", "1ü"] {
            assert!(DelayLevels::parse(bad).is_err(), "{bad}");
        }
    }
}
