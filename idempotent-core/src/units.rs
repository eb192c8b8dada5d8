//! Durations and sizes in configuration files, and texts of a limited size.
use std::fmt;
use std::time::Duration;

use serde::de::{Deserialize, Deserializer, Error, Visitor};

/// The value of the text `forever`.
pub(crate) const FOREVER: Duration = Duration::MAX;

/// A duration written as `"30s"`, `"1h 30m"` or `"forever"`.
#[derive(Clone, Copy, Debug)]
pub struct HumaneTime(Duration);

/// A size written as `"1MiB"` or as a number of bytes.
#[derive(Clone, Copy, Debug)]
pub struct HumaneSize(u64);

impl From<HumaneTime> for Duration {
    fn from(time: HumaneTime) -> Self {
        time.0
    }
}

impl From<HumaneSize> for u64 {
    fn from(size: HumaneSize) -> Self {
        size.0
    }
}

/// Returns the longest start of a text that has at most this many bytes.
#[must_use]
pub fn start_of(text: &str, most: usize) -> &str {
    let end = (0..=text.len().min(most)).rev().find(|end| text.is_char_boundary(*end));
    &text[..end.unwrap_or(0)]
}

pub(crate) fn time<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
    HumaneTime::deserialize(from).map(Into::into)
}

impl<'de> Deserialize<'de> for HumaneTime {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(HumaneVisitor { wanted: "a duration such as \"30s\"", text: parse_time, number: None })
            .map(Self)
    }
}

impl<'de> Deserialize<'de> for HumaneSize {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let (wanted, text) = ("a size such as \"1MiB\"", parse_size as fn(&str) -> Result<u64, String>);
        from.deserialize_any(HumaneVisitor { wanted, text, number: Some(|bytes| bytes) }).map(Self)
    }
}

struct HumaneVisitor<T> {
    wanted: &'static str,
    text: fn(&str) -> Result<T, String>,
    number: Option<fn(u64) -> T>,
}

impl<T> Visitor<'_> for HumaneVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.wanted)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
        (self.text)(text).map_err(E::custom)
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<T, E> {
        match self.number {
            Some(make) => Ok(make(number)),
            None => Err(E::custom(format!("`{number}` has no unit: write it as \"{number}s\", \"{number}ms\" …"))),
        }
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<T, E> {
        match u64::try_from(number) {
            Ok(number) => self.visit_u64(number),
            Err(_) => Err(E::custom(format!("`{number}` is negative"))),
        }
    }
}

fn parse_time(text: &str) -> Result<Duration, String> {
    const UNITS: &str = "ms, s, m, h, d, w";
    if text == "forever" {
        return Ok(FOREVER);
    }
    let too_long = || format!("\"{text}\" is too long for a duration; write \"30s\", or \"forever\" for no limit");
    if overflows(text) {
        return Err(too_long());
    }
    humantime::parse_duration(text).map_err(|e| {
        use humantime::DurationError as E;
        match e {
            E::InvalidCharacter(at) => {
                format!("\"{text}\" has an invalid character at {at}; write \"30s\", units {UNITS}")
            }
            E::NumberExpected(at) => format!("\"{text}\" needs a number at {at}; write \"30s\", units {UNITS}"),
            E::UnknownUnit { start, unit, .. } if unit.is_empty() => {
                format!("\"{text}\" has no unit at {start}; units are {UNITS}")
            }
            E::UnknownUnit { start, unit, .. } => {
                format!("\"{text}\" has an unknown unit `{unit}` at {start}; units are {UNITS}")
            }
            E::Empty => "the duration is empty; write \"30s\"".to_owned(),
            _ => too_long(),
        }
    })
}

/// Returns whether the sum of a duration's parts overflows.
///
/// humantime 2.4 detects most overflows but panics for `"18446744073709551615s 1000ms"`. It parses each part alone
/// safely. The attribute contains a copy of this function.
fn overflows(text: &str) -> bool {
    let (mut rest, mut sum) = (text, Some(Duration::ZERO));
    while let (Some(unit), Some(before)) = (rest.find(char::is_alphabetic), sum) {
        let ends = |char: char| char.is_ascii_digit() || char.is_whitespace();
        let (part, tail) = rest.split_at(rest[unit..].find(ends).map_or(rest.len(), |next| unit + next));
        // The caller reports text that is not a duration.
        let Ok(time) = humantime::parse_duration(part) else { return false };
        (rest, sum) = (tail, before.checked_add(time));
    }
    sum.is_none()
}

fn parse_size(text: &str) -> Result<u64, String> {
    text.parse::<bytesize::ByteSize>()
        .map(|size| size.as_u64())
        .map_err(|e| format!("\"{text}\" is not a size ({e}); write \"64KiB\" or \"1MiB\""))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_error_of_a_duration_contains_the_valid_form() {
        for (text, expected) in [
            ("3§", "invalid character at 1; write \"30s\""),
            ("s", "needs a number at 0"),
            ("30", "has no unit at 2; units are ms, s"),
            ("30 parsecs", "unknown unit `parsecs` at 3; units are ms, s"),
            ("", "is empty; write \"30s\""),
            ("999999999999999999999s", "too long for a duration"),
        ] {
            let error = parse_time(text).unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }

    #[test]
    fn a_value_of_another_type_is_an_error_with_the_expected_form() {
        let error = serde_json::from_str::<HumaneTime>("true").err().unwrap().to_string();
        assert!(error.contains("expected a duration such as \"30s\""), "{error}");
    }
}
