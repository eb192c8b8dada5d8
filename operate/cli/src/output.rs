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
        Format::Table => {
            for (name, value) in fields(record) {
                writeln!(out, "{name:<11}{value}")?;
            }
            Ok(())
        }
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

/// Returns the fields of one record for people.
fn fields(record: &RecordSummary) -> Vec<(&'static str, String)> {
    let over = record.taken_over.map_or_else(String::new, |fencing| format!(", took over from {fencing}"));
    let mut fields = vec![
        ("key", escaped(&record.key)),
        ("state", record.state.text().to_owned()),
        ("attempt", format!("{}{over}", record.attempt)),
        ("fencing", record.fencing.to_string()),
    ];
    let mut add = |name, value: Option<String>| fields.extend(value.map(|value| (name, value)));
    add("owner", record.owner.as_ref().map(|owner| format!("{}…", escaped(owner))));
    add("lease", record.lease_left_ms.map(lease_time));
    add(
        "claimable",
        record
            .delay_left_ms
            .map(|left| if left == 0 { "now".to_owned() } else { format!("in {}", time(left.unsigned_abs())) }),
    );
    add("error", record.error.as_deref().map(escaped));
    add("display", record.display.as_deref().map(escaped));
    add("result", record.result_bytes.map(|bytes| format!("{bytes} bytes")));
    add("first seen", Some(record.first_seen.clone()));
    add("updated", Some(format!("{}, {} ago", record.updated_at, time(record.age_ms))));
    add("expires", record.expires_in_ms.map(|left| format!("in {}", time(left))));
    fields
}
