//! The output of counts, of which some are lower bounds.
use std::io::{self, Write};
use std::time::Duration;

use serde_json::{Map, Value, json};

use super::time;
use crate::arguments::Format;

/// A number, or a lower bound.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Count {
    pub(crate) at_least: u64,
    pub(crate) is_exact: bool,
}

impl From<u64> for Count {
    fn from(exact: u64) -> Self {
        Self { at_least: exact, is_exact: true }
    }
}

#[cfg(feature = "database")]
impl From<idempotent::outbox::CappedCount> for Count {
    fn from(count: idempotent::outbox::CappedCount) -> Self {
        Self { at_least: count.at_least, is_exact: count.is_exact }
    }
}

/// Prints counts with their names, and the age of the oldest one.
pub(crate) fn counts(
    format: Format,
    counts: &[(&str, Count)],
    (name, oldest): (&str, Option<Duration>),
) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let millis = |age: Duration| u64::try_from(age.as_millis()).unwrap_or(u64::MAX);
    if format == Format::Table {
        let readable = |name: &str| name.replace('_', " ");
        for (name, count) in counts {
            let more = if count.is_exact { "" } else { "+" };
            writeln!(out, "{:<15}{}{more}", readable(name), count.at_least)?;
        }
        let age = oldest.map_or_else(|| "-".to_owned(), |age| time(millis(age)));
        return writeln!(out, "{:<15}{age}", readable(name));
    }
    let count = |count: &Count| json!({ "at_least": count.at_least, "exact": count.is_exact });
    let mut object: Map<String, Value> = counts.iter().map(|(name, of)| ((*name).to_owned(), count(of))).collect();
    object.insert(format!("{name}_ms"), oldest.map(millis).into());
    writeln!(out, "{}", Value::Object(object))
}
