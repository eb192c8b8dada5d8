//! The output of records and dead letters: columns for people, JSON lines for scripts.
mod counts;
mod letters;
#[cfg(feature = "database")]
mod outbox;
mod streams;

use std::io::{self, IsTerminal, Write};

use idempotent_operate::{RecordSummary, UnreadableSummary, escaped, lease_time, short_time as time};

use crate::arguments::Format;

pub(crate) use self::counts::counts;
pub(crate) use self::letters::{letter, letters};
#[cfg(feature = "database")]
pub(crate) use self::outbox::{OutboxMessage, outbox_entries, outbox_message};
pub(crate) use self::streams::{BlockingCall, stream, streams};

/// Returns the format of the option, or the default for this stdout.
pub(crate) fn format(option: Option<Format>) -> Format {
    option.unwrap_or(if io::stdout().is_terminal() { Format::Table } else { Format::Jsonl })
}

/// Prints a line to stderr. A closed stderr is no error: the line is no data.
pub(crate) fn note(text: impl std::fmt::Display) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}

/// Prints one record in full.
pub(crate) fn record(format: Format, record: &RecordSummary) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match format {
        Format::Jsonl => writeln!(out, "{}", serde_json::to_string(record)?),
        Format::Key => writeln!(out, "{}", escaped(&record.key)),
        Format::Table => lines(&mut out, fields(record)),
    }
}

/// Prints a page of records, and of records that cannot be read.
pub(crate) fn records(format: Format, records: &[RecordSummary], unreadable: &[UnreadableSummary]) -> io::Result<()> {
    if format != Format::Table {
        records.iter().try_for_each(|record| self::record(format, record))?;
        let mut out = io::stdout().lock();
        return unreadable.iter().try_for_each(|record| match format {
            Format::Key => writeln!(out, "{}", escaped(&record.key)),
            _ => writeln!(out, "{}", serde_json::to_string(record)?),
        });
    }
    let mut out = io::stdout().lock();
    let mut rows = vec![["STATE", "ATTEMPT", "AGE", "LEASE", "FENCING", "KEY"].map(str::to_owned)];
    rows.extend(records.iter().map(|record| {
        let lease = record.lease_left_ms.map_or_else(|| "-".to_owned(), lease_time);
        let numbers = [record.attempt.to_string(), time(record.age_ms), lease, record.fencing.to_string()];
        let [attempt, age, lease, fencing] = numbers;
        [record.state.text().to_owned(), attempt, age, lease, fencing, escaped(&record.key)]
    }));
    rows.extend(unreadable.iter().map(|record| {
        let key = format!("{}  ({})", escaped(&record.key), escaped(&record.reason));
        ["unreadable".to_owned(), "-".into(), "-".into(), "-".into(), "-".into(), key]
    }));
    // The key is the last column and is never truncated.
    columns(&mut out, &rows)
}

/// Prints rows in aligned columns.
fn columns<const N: usize>(out: &mut impl Write, rows: &[[String; N]]) -> io::Result<()> {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or_default();
    let widths: Vec<_> = (0..N - 1).map(width).collect();
    for row in rows {
        for (cell, width) in row.iter().zip(&widths) {
            write!(out, "{cell:<width$}  ")?;
        }
        writeln!(out, "{}", row[N - 1])?;
    }
    Ok(())
}

/// Prints each field that has a value, with its name before it.
fn lines(out: &mut impl Write, fields: impl IntoIterator<Item = (&'static str, Option<String>)>) -> io::Result<()> {
    let mut known = fields.into_iter().filter_map(|(name, value)| Some((name, value?)));
    known.try_for_each(|(name, value)| writeln!(out, "{name:<11}{value}"))
}

/// Returns the fields of one record for people.
fn fields(record: &RecordSummary) -> Vec<(&'static str, Option<String>)> {
    let over = record.taken_over.map_or_else(String::new, |fencing| format!(", took over from {fencing}"));
    let delay = |left: i64| if left == 0 { "now".to_owned() } else { format!("in {}", time(left.unsigned_abs())) };
    vec![
        ("key", Some(escaped(&record.key))),
        ("state", Some(record.state.text().to_owned())),
        ("attempt", Some(format!("{}{over}", record.attempt))),
        ("fencing", Some(record.fencing.to_string())),
        ("owner", record.owner.as_ref().map(|owner| format!("{}…", escaped(owner)))),
        ("lease", record.lease_left_ms.map(lease_time)),
        ("claimable", record.delay_left_ms.map(delay)),
        ("error", record.error.as_deref().map(escaped)),
        ("display", record.display.as_deref().map(escaped)),
        ("result", record.result_bytes.map(|bytes| format!("{bytes} bytes"))),
        ("first seen", Some(record.first_seen.clone())),
        ("updated", Some(format!("{}, {} ago", record.updated_at, time(record.age_ms)))),
        ("expires", record.expires_in_ms.map(|left| format!("in {}", time(left)))),
    ]
}
