//! Durations and sizes in the attribute, parsed at compile time.
use std::time::Duration;

use bytesize::ByteSize;
use humantime::DurationError;
use syn::{Error, Expr, ExprLit, ExprUnary, Lit, Result, UnOp};

const TIMES: &str = "units: ms, s, m, h, d, w; parts add up: \"30s\", \"10m\", \"1h 30m\", \"7d\"";
const SIZES: &str = "units: B, KB, MB, GB, KiB, MiB, GiB; examples: \"512KB\", \"1MiB\"";

/// Returns the milliseconds of `name = "30s"`, rounded up.
pub(crate) fn millis(name: &str, value: &Expr) -> Result<u64> {
    let text = text(name, value, "30s", "a duration")?;
    let wrong = |what: String| Error::new_spanned(value, format!("`{name}`: {what}"));
    if overflows(&text) {
        return Err(wrong(explain(&text, &DurationError::NumberOverflow)));
    }
    let duration = humantime::parse_duration(&text).map_err(|error| wrong(explain(&text, &error)))?;
    if duration.is_zero() {
        return Err(must_be_positive(name, value));
    }
    u64::try_from(duration.as_nanos().div_ceil(1_000_000))
        .map_err(|_| wrong(format!("\"{text}\" is out of range; {TIMES}")))
}

/// Returns the bytes of `name = "1MiB"`.
pub(crate) fn bytes(name: &str, value: &Expr) -> Result<u64> {
    let text = text(name, value, "1MiB", "a size")?;
    let wrong = |what: &str| Error::new_spanned(value, format!("`{name}`: {what}; {SIZES}"));
    if text.trim().parse::<u64>().is_ok_and(|number| number > 0) {
        return Err(wrong(&format!("\"{text}\" needs a unit")));
    }
    match text.trim().parse::<ByteSize>() {
        Ok(ByteSize(0)) => Err(must_be_positive(name, value)),
        Ok(ByteSize(bytes)) => Ok(bytes),
        Err(_) => {
            let digits = text.chars().take_while(|char| char.is_ascii_digit() || ". ".contains(*char)).count();
            Err(wrong(&format!("\"{text}\" is not understood from character {} on", digits + 1)))
        }
    }
}

/// Returns the text of a literal, or an error that shows the quoted form of a bare number.
fn text(name: &str, value: &Expr, example: &str, what: &str) -> Result<String> {
    let quoted = |example: &str, hint: &str| {
        Error::new_spanned(value, format!("`{name}` is {what} in quotes: `{name} = \"{example}\"`{hint}"))
    };
    match value {
        Expr::Lit(ExprLit { lit, .. }) => match lit {
            Lit::Str(text) if text.value().trim_start().starts_with('-') => Err(must_be_positive(name, value)),
            Lit::Str(text) => Ok(text.value()),
            Lit::Int(number) if number.base10_digits() == "0" => Err(must_be_positive(name, value)),
            Lit::Int(number) if number.suffix().is_empty() => {
                Err(quoted(example, &format!("; which unit is `{number}` in?")))
            }
            Lit::Int(number) => Err(quoted(&number.to_string(), "")),
            _ => Err(quoted(example, "")),
        },
        Expr::Unary(ExprUnary { op: UnOp::Neg(_), .. }) => Err(must_be_positive(name, value)),
        Expr::Group(group) => text(name, &group.expr, example, what),
        _ => Err(quoted(example, "")),
    }
}

fn must_be_positive(name: &str, value: &Expr) -> Error {
    Error::new_spanned(value, format!("`{name}` must be > 0"))
}

/// Describes a parse error. Positions are in characters and start at 1.
fn explain(text: &str, error: &DurationError) -> String {
    let at = |byte: usize| text.get(..byte).map_or(1, |before| before.chars().count() + 1);
    match error {
        DurationError::InvalidCharacter(byte) => format!("\"{text}\": unexpected character at {}; {TIMES}", at(*byte)),
        DurationError::NumberExpected(byte) => format!("\"{text}\": a number is missing at {}; {TIMES}", at(*byte)),
        DurationError::UnknownUnit { unit, .. } if unit.is_empty() => format!("\"{text}\" needs a unit; {TIMES}"),
        DurationError::UnknownUnit { start, unit, .. } => {
            format!("\"{text}\": unknown unit `{unit}` at character {}; {TIMES}", at(*start))
        }
        DurationError::NumberOverflow => format!("\"{text}\" is out of range; {TIMES}"),
        DurationError::Empty => format!("the duration is empty; {TIMES}"),
    }
}

/// Returns whether the sum of a duration's parts overflows. humantime 2.4 panics for some of these.
///
/// This is a copy of the core's function for policies, because this crate shares no code with the core.
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn expr(source: &str) -> Expr {
        syn::parse_str(source).unwrap()
    }

    #[test]
    fn durations_count_in_milliseconds_and_are_rounded_up() {
        for (source, want) in [
            ("\"30s\"", 30_000),
            ("\"10m\"", 600_000),
            ("\"1h 30m\"", 5_400_000),
            ("\"7d\"", 604_800_000),
            ("\"1us\"", 1),
            ("\"1500us\"", 2),
        ] {
            assert_eq!(millis("lease", &expr(source)).unwrap(), want, "{source}");
        }
    }

    #[test]
    fn an_invalid_duration_is_refused_with_its_position_and_the_valid_forms() {
        for (source, want) in [
            ("\"5 minuts\"", "unknown unit `minuts` at character 3; units: ms, s, m, h"),
            ("\"abc\"", "a number is missing at 1"),
            ("\"1e9\"", "unknown unit `e` at character 2"),
            ("\"5\"", "\"5\" needs a unit"),
            ("\"5,s\"", "unexpected character at 2"),
            ("\"\"", "the duration is empty"),
            ("\"99999999999y\"", "out of range"),
            ("\"18446744073709551615s 1000ms\"", "out of range"),
            ("\"18446744073709551615s 1000ms é\"", "out of range"),
            ("\"0s\"", "`lease` must be > 0"),
            ("0", "`lease` must be > 0"),
            ("-1", "`lease` must be > 0"),
            ("\"-1s\"", "`lease` must be > 0"),
            ("30", "which unit is `30` in?"),
            ("20s", "in quotes: `lease = \"20s\"`"),
            ("LEASE", "in quotes: `lease = \"30s\"`"),
        ] {
            let error = millis("lease", &expr(source)).unwrap_err().to_string();
            assert!(error.contains(want), "{source}: {error}");
        }
    }

    #[test]
    fn sizes_count_in_bytes() {
        assert_eq!(bytes("max_result", &expr("\"1MiB\"")).unwrap(), 1 << 20);
        assert_eq!(bytes("max_result", &expr("\"512 KB\"")).unwrap(), 512_000);
        for (source, want) in [
            ("\"1 megabyt\"", "not understood from character 3 on; units: B, KB"),
            ("\"0B\"", "must be > 0"),
            ("\"5\"", "needs a unit"),
            ("7", "is a size in quotes"),
        ] {
            let error = bytes("max_result", &expr(source)).unwrap_err().to_string();
            assert!(error.contains(want), "{source}: {error}");
        }
    }
}
