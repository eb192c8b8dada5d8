//! The output of streams.
use std::io::{self, Write};

use idempotent_operate::{StreamSummary, escaped};

use super::{columns, lines, time};
use crate::arguments::Format;

/// The call that blocks a stream.
#[derive(Debug)]
pub(crate) struct BlockingCall {
    pub(crate) state: &'static str,
    /// The readable part of its key, if its record has one.
    pub(crate) display: Option<String>,
}

/// Prints a page of streams, each with the call that blocks it.
pub(crate) fn streams(format: Format, streams: &[(StreamSummary, Option<BlockingCall>)]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    if format != Format::Table {
        return streams.iter().try_for_each(|(stream, call)| writeln!(out, "{}", object(stream, call.as_ref())?));
    }
    let header = ["SCOPE", "LAST", "NEXT", "WAITING", "LAST DELIVERED", "BLOCKED BY", "LAST KEY"];
    let mut rows = vec![header.map(str::to_owned)];
    rows.extend(streams.iter().map(|(stream, call)| {
        let or_none = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
        [
            or_none(stream.scope.as_deref().map(escaped)),
            or_none(stream.last.map(|number| number.to_string())),
            or_none(stream.next.map(|number| number.to_string())),
            or_none(stream.waiting_ms.map(time)),
            or_none(stream.last_delivered.clone()),
            or_none(blocker(stream).map(|blocker| blocker + &description(call.as_ref()))),
            or_none(stream.last_key.as_deref().map(escaped)),
        ]
    }));
    columns(&mut out, &rows)
}

fn blocker(stream: &StreamSummary) -> Option<String> {
    let number = stream.blocked_by_number.map(|number| format!("number {number}, not delivered"));
    number.or_else(|| stream.blocked_by.as_deref().map(escaped))
}

/// Returns the state of a blocking call and the readable part of its key, in brackets.
fn description(call: Option<&BlockingCall>) -> String {
    let Some(call) = call else { return String::new() };
    let display = call.display.as_deref().map_or_else(String::new, |display| format!(", {}", escaped(display)));
    format!(" ({}{display})", call.state)
}

fn object(stream: &StreamSummary, call: Option<&BlockingCall>) -> serde_json::Result<serde_json::Value> {
    let mut object = serde_json::to_value(stream)?;
    if let (Some(object), Some(call)) = (object.as_object_mut(), call) {
        object.insert("blocked_by_state".to_owned(), call.state.into());
        object.extend(call.display.as_deref().map(|display| ("blocked_by_display".to_owned(), display.into())));
    }
    Ok(object)
}

/// Prints one stream in full, with the call that blocks it.
pub(crate) fn stream(format: Format, stream: &StreamSummary, call: Option<&BlockingCall>) -> io::Result<()> {
    let mut out = io::stdout().lock();
    if format != Format::Table {
        return writeln!(out, "{}", object(stream, call)?);
    }
    let call = description(call);
    let fields = [
        ("scope", stream.scope.as_deref().map(escaped)),
        ("last", stream.last.map(|number| number.to_string())),
        ("last key", stream.last_key.as_deref().map(escaped)),
        ("running", stream.running.as_deref().map(escaped)),
        ("next", stream.next.map(|number| number.to_string())),
        ("waiting", stream.waiting_ms.map(|age| format!("since {}", time(age)))),
        ("delivered", stream.last_delivered.clone()),
        ("blocked by", blocker(stream).map(|blocker| blocker + &call)),
    ];
    lines(&mut out, fields)?;
    for numbers in &stream.waiting {
        let kind = if numbers.is_delivered { "waits" } else { "expected" };
        match (numbers.from, numbers.to) {
            (from, to) if from == to => writeln!(out, "{kind:<11}{from}")?,
            (from, to) => writeln!(out, "{kind:<11}{from} to {to}")?,
        }
    }
    Ok(())
}
