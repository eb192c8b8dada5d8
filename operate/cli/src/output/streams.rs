//! The output of streams.
use std::io::{self, Write};

use idempotent_operate::{StreamSummary, escaped};

use super::{columns, time};
use crate::arguments::Format;

/// Prints a page of streams.
pub(crate) fn streams(format: Format, streams: &[StreamSummary]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    if format != Format::Table {
        return streams.iter().try_for_each(|stream| writeln!(out, "{}", serde_json::to_string(stream)?));
    }
    let mut rows = vec![["LAST", "NEXT", "WAITING", "LAST DELIVERED", "BLOCKED BY", "LAST KEY"].map(str::to_owned)];
    rows.extend(streams.iter().map(|stream| {
        let or_none = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
        [
            or_none(stream.last.map(|number| number.to_string())),
            or_none(stream.next.map(|number| number.to_string())),
            or_none(stream.waiting_ms.map(time)),
            or_none(stream.last_delivered.clone()),
            or_none(blocker(stream)),
            or_none(stream.last_key.as_deref().map(escaped)),
        ]
    }));
    columns(&mut out, &rows)
}

fn blocker(stream: &StreamSummary) -> Option<String> {
    let number = stream.blocked_by_number.map(|number| format!("number {number}, not delivered"));
    number.or_else(|| stream.blocked_by.as_deref().map(escaped))
}

/// Prints one stream in full, with the state of the call that blocks it.
pub(crate) fn stream(format: Format, stream: &StreamSummary, state: Option<&str>) -> io::Result<()> {
    let mut out = io::stdout().lock();
    if format != Format::Table {
        let mut object = serde_json::to_value(stream)?;
        if let Some(object) = object.as_object_mut() {
            object.extend(state.map(|state| ("blocked_by_state".to_owned(), state.into())));
        }
        return writeln!(out, "{object}");
    }
    let state = state.map_or_else(String::new, |state| format!(" ({state})"));
    let fields = [
        ("last", stream.last.map(|number| number.to_string())),
        ("last key", stream.last_key.as_deref().map(escaped)),
        ("running", stream.running.as_deref().map(escaped)),
        ("next", stream.next.map(|number| number.to_string())),
        ("waiting", stream.waiting_ms.map(|age| format!("since {}", time(age)))),
        ("delivered", stream.last_delivered.clone()),
        ("blocked by", blocker(stream).map(|blocker| blocker + &state)),
    ];
    for (name, value) in fields {
        if let Some(value) = value {
            writeln!(out, "{name:<11}{value}")?;
        }
    }
    for numbers in &stream.waiting {
        let kind = if numbers.is_delivered { "waits" } else { "expected" };
        match (numbers.from, numbers.to) {
            (from, to) if from == to => writeln!(out, "{kind:<11}{from}")?,
            (from, to) => writeln!(out, "{kind:<11}{from} to {to}")?,
        }
    }
    Ok(())
}
