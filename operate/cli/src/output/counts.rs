//! The output of counts, of which some are lower bounds.
use std::io::{self, Write};
use std::time::Duration;

use idempotent_operate::{BoundedCount, short_time as time};
use serde_json::{Map, Value, json};

use crate::arguments::Format;

/// Prints counts with their names, and the age of the oldest one.
pub(crate) fn counts(
    format: Format,
    counts: &[(&str, BoundedCount)],
    (name, oldest): (&str, Option<Duration>),
) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let millis = |age: Duration| u64::try_from(age.as_millis()).unwrap_or(u64::MAX);
    if format == Format::Table {
        let readable = |name: &str| name.replace('_', " ");
        for (name, count) in counts {
            writeln!(out, "{:<15}{count}", readable(name))?;
        }
        let age = oldest.map_or_else(|| "-".to_owned(), |age| time(millis(age)));
        return writeln!(out, "{:<15}{age}", readable(name));
    }
    let count = |count: &BoundedCount| json!({ "at_least": count.at_least, "exact": count.is_exact });
    let mut object: Map<String, Value> = counts.iter().map(|(name, of)| ((*name).to_owned(), count(of))).collect();
    object.insert(format!("{name}_ms"), oldest.map(millis).into());
    writeln!(out, "{}", Value::Object(object))
}
