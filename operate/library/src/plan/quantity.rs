//! Quantities as text: rates, bytes and counts.
use super::error::PlanError;

/// The units of time of a rate, in seconds.
const TIMES: [(&str, f64); 9] = [
    ("s", 1.0),
    ("sec", 1.0),
    ("min", 60.0),
    ("m", 60.0),
    ("h", 3_600.0),
    ("hour", 3_600.0),
    ("d", 86_400.0),
    ("day", 86_400.0),
    ("week", 604_800.0),
];

/// The units of bytes. A plain number is in bytes.
const UNITS: [(&str, f64); 11] = [
    ("", 1.0),
    ("B", 1.0),
    ("kB", 1e3),
    ("KB", 1e3),
    ("MB", 1e6),
    ("GB", 1e9),
    ("TB", 1e12),
    ("KiB", 1_024.0),
    ("MiB", 1_048_576.0),
    ("GiB", 1_073_741_824.0),
    ("TiB", 1_099_511_627_776.0),
];

/// Parses a rate such as `12000/s` or `1e9/day` into events per second.
///
/// ```
/// use idempotent_operate::plan::parse_rate;
///
/// assert_eq!(parse_rate("12000/s"), Ok(12_000.0));
/// assert_eq!(parse_rate("1e9/day"), Ok(1e9 / 86_400.0));
/// assert!(parse_rate("12000").is_err());
/// ```
///
/// # Errors
/// [`Quantity`](PlanError::Quantity), with the text and the expected form.
pub fn parse_rate(text: &str) -> Result<f64, PlanError> {
    let parsed = text.split_once('/').and_then(|(number, unit)| {
        let (_, seconds) = TIMES.iter().find(|(name, _)| *name == unit.trim())?;
        Some(number_of(number)? / seconds)
    });
    parsed.ok_or_else(|| PlanError::Quantity {
        text: text.to_owned(),
        kind: "rate",
        expected: "a number and a unit of time, such as `12000/s`, `5e7/day` or `300/min`",
    })
}

/// Parses a number of bytes such as `8GB`, `512MiB` or `100`.
///
/// ```
/// use idempotent_operate::plan::parse_bytes;
///
/// assert_eq!(parse_bytes("8GB"), Ok(8e9));
/// assert_eq!(parse_bytes("1 KiB"), Ok(1_024.0));
/// ```
///
/// # Errors
/// [`Quantity`](PlanError::Quantity), with the text and the expected form.
pub fn parse_bytes(text: &str) -> Result<f64, PlanError> {
    let digits = text.trim_end_matches(|char: char| char.is_ascii_alphabetic());
    let unit = &text[digits.len()..];
    let parsed = UNITS.iter().find(|(name, _)| *name == unit);
    let parsed = parsed.and_then(|(_, bytes)| Some(number_of(digits)? * bytes));
    parsed.ok_or_else(|| PlanError::Quantity {
        text: text.to_owned(),
        kind: "number of bytes",
        expected: "a number and a unit, such as `8GB`, `512MiB` or `100B`",
    })
}

/// Parses a finite number of at least 0. Commas may separate the thousands.
fn number_of(text: &str) -> Option<f64> {
    let number: f64 = text.trim().replace([',', '_'], "").parse().ok()?;
    (number.is_finite() && number >= 0.0).then_some(number)
}

/// Returns bytes with a decimal unit and three digits.
pub(super) fn bytes(bytes: f64) -> String {
    let (unit, size) = [("PB", 1e15), ("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)]
        .into_iter()
        .find(|(_, size)| bytes >= 0.9995 * size)
        .unwrap_or(("B", 1.0));
    format!("{} {unit}", digits(bytes / size))
}

/// Returns a count, in words from a million on.
pub(super) fn count(count: f64) -> String {
    match count {
        _ if count >= 0.9995e12 => format!("{} trillion", digits(count / 1e12)),
        _ if count >= 0.9995e9 => format!("{} billion", digits(count / 1e9)),
        _ if count >= 0.9995e6 => format!("{} million", digits(count / 1e6)),
        _ if count >= 99.95 => grouped(count),
        _ => digits(count).trim_end_matches('0').trim_end_matches('.').to_owned(),
    }
}

/// Returns a number with three digits, or with all digits before the point.
pub(super) fn digits(number: f64) -> String {
    match number {
        _ if number >= 99.95 => format!("{number:.0}"),
        _ if number >= 9.995 => format!("{number:.1}"),
        _ => format!("{number:.2}"),
    }
}

/// Returns a whole number with separators of thousands.
fn grouped(number: f64) -> String {
    let digits = format!("{number:.0}");
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_of_each_form_are_read_and_other_texts_are_refused() {
        for (text, rate) in
            [("12,000/s", 12_000.0), ("86400/day", 1.0), ("7200/h", 2.0), ("0/s", 0.0), ("1e3 / s", 1e3)]
        {
            assert_eq!(parse_rate(text), Ok(rate), "{text}");
        }
        for text in ["", "12000", "/s", "12/fortnight", "-1/s", "NaN/s", "inf/s", "1e400/s", "12 000/s"] {
            assert!(parse_rate(text).is_err_and(|error| error.to_string().contains("`12000/s`")), "{text}");
        }
        for (text, bytes) in [("0", 0.0), ("100B", 100.0), ("1.5 GB", 1.5e9), ("2GiB", 2_147_483_648.0)] {
            assert_eq!(parse_bytes(text), Ok(bytes), "{text}");
        }
        for text in ["", "GB", "8 G", "8gb", "-8GB", "eightGB"] {
            assert!(parse_bytes(text).is_err_and(|error| error.to_string().contains("`8GB`")), "{text}");
        }
    }

    #[test]
    fn texts_have_three_digits() {
        let sizes = [0.0, 149.4, 999.6, 1e6, 13.44e9, 170.2e9, 1.149e12].map(bytes);
        assert_eq!(sizes, ["0.00 B", "149 B", "1.00 kB", "1.00 MB", "13.4 GB", "170 GB", "1.15 TB"]);
        let counts = [0.0, 0.5, 3.0, 240.0, 12_000.0, 86.4e6, 1.0368e9].map(count);
        assert_eq!(counts, ["0", "0.5", "3", "240", "12,000", "86.4 million", "1.04 billion"]);
        assert_eq!(count(2.5e12), "2.50 trillion");
    }
}
