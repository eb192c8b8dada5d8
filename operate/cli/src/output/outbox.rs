//! The output of messages of an outbox.
use std::io::{self, Write};

use idempotent::Timestamp;
use idempotent::mq::OutboundMessage;
use idempotent::outbox::{AuditEntry, OutboxEntry, OutboxRecord, OutboxStatus};
use idempotent_operate::{date, escaped, escaped_bytes};
use serde_json::{Value, json};

use super::letters::LONGEST_BODY;
use super::{columns, lines};
use crate::arguments::Format;

/// One message of an outbox, for [`outbox_message`].
pub(crate) struct OutboxMessage<'a> {
    pub(crate) id: &'a str,
    pub(crate) record: &'a OutboxRecord,
    /// The content, or `None` if its row is damaged.
    pub(crate) message: Option<&'a OutboundMessage>,
    pub(crate) audit: &'a [AuditEntry],
    pub(crate) shows_body: bool,
}

/// Prints a page of messages.
pub(crate) fn outbox_entries(format: Format, entries: &[OutboxEntry]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    if format == Format::Table {
        let header = ["SEQ", "STATUS", "SENDS", "CREATED", "SENT", "TOPIC", "ID", "LAST ERROR"];
        let mut rows = vec![header.map(str::to_owned)];
        rows.extend(entries.iter().map(|entry| {
            let record = &entry.record;
            let or_none = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
            [
                record.seq.to_string(),
                status(record.status).to_owned(),
                record.sends.to_string(),
                date(record.created_at),
                or_none(record.sent_at.map(date)),
                escaped(&entry.topic),
                escaped(&entry.id),
                or_none(record.last_error.as_deref().map(escaped)),
            ]
        }));
        return columns(&mut out, &rows);
    }
    for entry in entries {
        match format {
            Format::Key => writeln!(out, "{}", escaped(&entry.id))?,
            _ => writeln!(out, "{}", object(&entry.id, Some(&entry.topic), &entry.record))?,
        }
    }
    Ok(())
}

fn status(status: OutboxStatus) -> &'static str {
    match status {
        OutboxStatus::Unconfirmed => "unconfirmed",
        OutboxStatus::Confirmed => "confirmed",
        OutboxStatus::Void => "void",
        OutboxStatus::Dead => "dead",
        _ => "other",
    }
}

fn object(id: &str, topic: Option<&str>, record: &OutboxRecord) -> Value {
    json!({
        "seq": record.seq,
        "id": id,
        "topic": topic,
        "status": status(record.status),
        "sends": record.sends,
        "failures": record.failures,
        "queue": record.queue,
        "due_at": record.due_at.map(date),
        "created_at": date(record.created_at),
        "sent_at": record.sent_at.map(date),
        "last_error": record.last_error,
    })
}

/// Prints one message in full, with the names and sizes of its headers.
pub(crate) fn outbox_message(format: Format, shown: &OutboxMessage<'_>) -> anyhow::Result<()> {
    let OutboxMessage { id, record, message, audit, shows_body } = shown;
    let body = message.filter(|_| *shows_body).map(|message| escaped_bytes(&message.body, LONGEST_BODY));
    let headers = message.iter().flat_map(|message| message.headers.iter());
    let mut out = io::stdout().lock();
    if format != Format::Table {
        let mut object = object(id, message.map(|message| message.topic.as_str()), record);
        if let Some(object) = object.as_object_mut() {
            let headers = headers.map(|(name, value)| json!({ "name": name, "bytes": value.len() }));
            object.insert("headers".into(), headers.collect());
            object.insert("body_bytes".into(), message.map(|message| message.body.len()).into());
            object.insert("audit".into(), audit.iter().map(audited).collect());
            object.extend(body.map(|body| ("body".to_owned(), body.into())));
        }
        return Ok(writeln!(out, "{object}")?);
    }
    lines(&mut out, fields(shown))?;
    for (name, value) in headers {
        writeln!(out, "{:<11}{}, {} bytes", "header", escaped(name), value.len())?;
    }
    for AuditEntry { by, action, reason, at, .. } in *audit {
        let [by, action, reason] = [by, action, reason].map(|text| escaped(text));
        writeln!(out, "{:<11}{action} by {by} at {}: {reason}", "audit", date(*at))?;
    }
    if let Some(body) = body {
        writeln!(out, "{body}")?;
    }
    Ok(())
}

fn audited(entry: &AuditEntry) -> Value {
    json!({ "by": entry.by, "action": entry.action, "reason": entry.reason, "at": date(entry.at) })
}

/// Returns the fields of one message for people.
fn fields(shown: &OutboxMessage<'_>) -> [(&'static str, Option<String>); 13] {
    let OutboxMessage { id, record, message, .. } = shown;
    let time = |time: Option<Timestamp>| time.map(date);
    let body = match message {
        Some(message) => format!("{} bytes", message.body.len()),
        None => "the row is damaged".to_owned(),
    };
    [
        ("id", Some(escaped(id))),
        ("seq", Some(record.seq.to_string())),
        ("topic", message.map(|message| escaped(&message.topic))),
        ("status", Some(status(record.status).to_owned())),
        ("sends", Some(format!("{}, {} failures since", record.sends, record.failures))),
        ("queue", record.queue.as_deref().map(escaped)),
        ("created", time(Some(record.created_at))),
        ("sent", time(record.sent_at)),
        ("due", time(record.due_at)),
        ("error", record.last_error.as_deref().map(escaped)),
        ("key", message.and_then(|message| message.business_key.as_deref()).map(escaped)),
        ("aggregate", message.and_then(|message| message.aggregate.as_deref()).map(escaped)),
        ("body", Some(body)),
    ]
}
