//! The output of dead letters.
use std::io::{self, Write};

use idempotent::mq::Headers;
use idempotent_operate::{LetterSummary, escaped, escaped_bytes};
use serde_json::json;

use super::{columns, lines};
use crate::arguments::Format;

/// The largest part of a body that is printed.
pub(super) const LONGEST_BODY: usize = 16 * 1_024;

/// Prints dead letters, each with an outcome if a redrive has one.
pub(crate) fn letters<'a>(
    format: Format,
    letters: impl Iterator<Item = (&'a LetterSummary, Option<&'a str>)>,
) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    if format == Format::Table {
        let mut rows =
            vec![["#", "DIED", "ATTEMPTS", "DEATHS", "BYTES", "ID", "MESSAGE", "KEY", "REASON", ""].map(str::to_owned)];
        rows.extend(letters.map(|(letter, outcome)| row(letter, outcome)));
        return Ok(columns(&mut out, &rows)?);
    }
    for (letter, outcome) in letters {
        match (format, &letter.key) {
            (Format::Key, Some(key)) => writeln!(out, "{}", escaped(key))?,
            (Format::Key, None) => {}
            _ => {
                let mut object = serde_json::to_value(letter)?;
                if let Some((object, outcome)) = object.as_object_mut().zip(outcome) {
                    object.insert("outcome".into(), outcome.into());
                }
                writeln!(out, "{object}")?;
            }
        }
    }
    Ok(())
}

fn row(letter: &LetterSummary, outcome: Option<&str>) -> [String; 10] {
    let or_none = |text: &Option<String>| text.as_deref().map_or_else(|| "-".to_owned(), escaped);
    [
        letter.position.to_string(),
        or_none(&letter.died_at),
        letter.attempts.map_or_else(|| "-".to_owned(), |attempts| attempts.to_string()),
        letter.deaths.to_string(),
        letter.body_bytes.to_string(),
        escaped(&letter.id),
        or_none(&letter.message_id),
        or_none(&letter.key),
        or_none(&letter.reason),
        outcome.map(escaped).unwrap_or_default(),
    ]
}

/// Prints one dead letter in full, with the names and sizes of its headers, and with its body if there is one here.
pub(crate) fn letter(
    format: Format,
    letter: &LetterSummary,
    headers: &Headers,
    body: Option<&[u8]>,
) -> anyhow::Result<()> {
    let body = body.map(|body| escaped_bytes(body, LONGEST_BODY));
    let mut out = io::stdout().lock();
    if format != Format::Table {
        let headers = headers.iter().map(|(name, value)| json!({ "name": name, "bytes": value.len() }));
        let mut object = serde_json::to_value(letter)?;
        if let Some(object) = object.as_object_mut() {
            object.insert("headers".into(), headers.collect());
            object.extend(body.map(|body| ("body".to_owned(), body.into())));
        }
        return Ok(writeln!(out, "{object}")?);
    }
    let text = |text: &Option<String>| text.as_deref().map(escaped);
    let fields = [
        ("position", Some(letter.position.to_string())),
        ("id", Some(escaped(&letter.id))),
        ("message id", text(&letter.message_id)),
        ("key", text(&letter.key)),
        ("fencing", letter.fencing.map(|fencing| fencing.to_string())),
        ("died", text(&letter.died_at)),
        ("reason", text(&letter.reason)),
        ("attempts", letter.attempts.map(|attempts| attempts.to_string())),
        ("deaths", Some(letter.deaths.to_string())),
        ("body", Some(format!("{} bytes", letter.body_bytes))),
    ];
    lines(&mut out, fields)?;
    for (name, value) in headers.iter() {
        writeln!(out, "{:<11}{}, {} bytes", "header", escaped(name), value.len())?;
    }
    if let Some(body) = body {
        writeln!(out, "{body}")?;
    }
    Ok(())
}
