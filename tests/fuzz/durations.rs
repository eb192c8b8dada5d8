//! Durations in their text form, in a policy at run time and in the attribute at compile time.
use std::fmt::Write;
use std::time::Duration;

use arbitrary::{Arbitrary, Result, Unstructured};
use idempotent_core::{Policy, Scene};

// The attribute's own parser, included here because a macro crate exports only the macro.
#[allow(dead_code, unreachable_pub)]
#[path = "../../idempotent-macros/src/units.rs"]
mod units;

/// The functions under test.
#[derive(Debug)]
pub struct Reader {
    /// Parses a policy with this lease, as in a configuration file.
    pub lease: fn(&str) -> std::result::Result<Policy, String>,
}

impl Reader {
    /// The real functions, which use `Deserialize`.
    pub const REAL: Self = Self { lease };
}

fn lease(text: &str) -> std::result::Result<Policy, String> {
    serde_json::from_value(serde_json::json!({ "lease": text })).map_err(|e| e.to_string())
}

/// Checks the input as text, and as a list of numbers and units that form a text.
pub fn hold(reader: &Reader, input: &[u8]) -> &'static str {
    if let Ok((text, nanos)) = sum(&mut Unstructured::new(input)) {
        summed(reader, &text, nanos);
    }
    any(reader, &String::from_utf8_lossy(input))
}

fn any(reader: &Reader, text: &str) -> &'static str {
    let attribute = units::millis("lease", &literal(text));
    let policy = match (reader.lease)(text) {
        Ok(policy) => policy,
        Err(error) => {
            explained(&error);
            explained(&attribute.expect_err("what a policy refuses, the attribute does, too").to_string());
            return "refused";
        }
    };
    if text == "forever" {
        assert_eq!(policy, Policy::new().lease(Policy::FOREVER));
        return "forever";
    }
    let duration = humantime::parse_duration(text).expect("what is read is a duration");
    assert_eq!(policy, Policy::new().lease(duration));
    // The printed form of errors is parsed to the same duration.
    let printed = humantime::format_duration(duration).to_string();
    assert_eq!((reader.lease)(&printed).as_ref(), Ok(&policy), "{printed}");
    let checked = policy.check(&Scene::Mq).map_err(|e| e.to_string());
    if duration.is_zero() || duration > MONTH {
        let error = checked.expect_err("a lease is 1 ms … 30 days");
        assert!(error.contains(&printed) && error.contains("it must be 1 ms … 30 days"), "{error}");
    }
    let millis = duration.as_nanos().div_ceil(1_000_000);
    match attribute {
        Ok(found) => assert!(millis > 0 && u128::from(found) == millis, "{found} ms, not {millis} ms"),
        Err(error) => {
            explained(&error.to_string());
            assert!(millis == 0 || u64::try_from(millis).is_err(), "{error}");
            return "out of the attribute's range";
        }
    }
    "read"
}

const MONTH: Duration = Duration::from_secs(30 * 24 * 3600);

/// Checks that an error names the setting and the remedy.
fn explained(error: &str) {
    assert!(error.contains("`lease`"), "{error}");
    assert!(["units", "\"30s\"", "must be > 0"].iter().any(|remedy| error.contains(remedy)), "{error}");
}

/// Compares with an independent sum, in a number that cannot overflow.
fn summed(reader: &Reader, text: &str, nanos: u128) {
    match (reader.lease)(text) {
        Ok(policy) => {
            let seconds = u64::try_from(nanos / 1_000_000_000).expect("what is read is no longer than a Duration");
            #[allow(clippy::cast_possible_truncation, reason = "a remainder below 10^9")]
            let duration = Duration::new(seconds, (nanos % 1_000_000_000) as u32);
            assert_eq!(policy, Policy::new().lease(duration), "{text}");
        }
        // Each part may use at least 64 bits of ns.
        Err(error) => {
            assert!(error.contains("too long for a duration") && nanos > u128::from(u64::MAX), "{text}: {error}")
        }
    }
}

const UNITS: [(&str, u128); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
    ("d", 86_400_000_000_000),
    ("w", 604_800_000_000_000),
];

fn sum(from: &mut Unstructured<'_>) -> Result<(String, u128)> {
    let (mut text, mut nanos) = (String::new(), 0u128);
    for _ in 0..from.int_in_range(1..=4)? {
        let (unit, each) = *from.choose(&UNITS)?;
        let number = u64::arbitrary(from)? >> from.int_in_range(0..=63)?;
        let blank = if from.arbitrary()? { " " } else { "" };
        // Writing to a string cannot fail.
        let _ = write!(text, "{number}{unit}{blank}");
        nanos += u128::from(number) * each;
    }
    Ok((text, nanos))
}

fn literal(text: &str) -> syn::Expr {
    let text = syn::LitStr::new(text, proc_macro2::Span::call_site());
    syn::Expr::Lit(syn::ExprLit { attrs: Vec::new(), lit: syn::Lit::Str(text) })
}
