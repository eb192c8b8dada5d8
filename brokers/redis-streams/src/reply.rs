//! Parsing of server replies.
use idempotent_mq::{SourceError, SourceErrorKind};
use redis::Value;

use crate::carrier::Fields;
use crate::retry_mark::RetryMark;

/// A delivered entry.
#[derive(Debug)]
pub(crate) struct StreamEntry {
    pub(crate) id: String,
    pub(crate) fields: Fields,
    /// Number of deliveries, including this one.
    pub(crate) delivered: u32,
    /// The mark of the last retry.
    pub(crate) mark: Option<RetryMark>,
}

/// The result of one step of a search for idle entries.
#[derive(Debug)]
pub(crate) struct IdleEntries {
    /// Position for the next step; `0-0` at the end.
    pub(crate) cursor: String,
    pub(crate) entries: Vec<StreamEntry>,
    /// Number of pending entries that were deleted or trimmed.
    pub(crate) gone: i64,
}

/// Parses the reply to `XREADGROUP` for one stream.
///
/// # Errors
/// `Fatal` if the reply is malformed.
pub(crate) fn parse_new(value: Value) -> Result<Vec<StreamEntry>, SourceError> {
    let entries = match value {
        Value::Nil => return Ok(Vec::new()),
        Value::Array(mut streams) => match streams.pop() {
            Some(Value::Array(mut stream)) => stream.pop(),
            _ => None,
        },
        _ => None,
    };
    let Some(Value::Array(entries)) = entries else { return Err(unexpected_reply("XREADGROUP")) };
    let entries = entries.into_iter().map(|entry| read(entry, 1));
    entries.collect::<Option<_>>().ok_or_else(|| unexpected_reply("XREADGROUP"))
}

/// Parses the reply to `XRANGE`.
///
/// # Errors
/// `Fatal` if the reply is malformed.
pub(crate) fn parse_range(value: Value) -> Result<Vec<StreamEntry>, SourceError> {
    let Value::Array(entries) = value else { return Err(unexpected_reply("XRANGE")) };
    let entries = entries.into_iter().map(|entry| read(entry, 1));
    entries.collect::<Option<_>>().ok_or_else(|| unexpected_reply("XRANGE"))
}

/// Parses the reply of the script `take`.
///
/// # Errors
/// `Fatal` if the reply is malformed.
pub(crate) fn parse_idle(value: Value) -> Result<IdleEntries, SourceError> {
    let parts = |value| {
        let [cursor, Value::Array(entries), Value::Int(gone)] = array(value)? else { return None };
        let entries = entries.into_iter().map(|entry| {
            let [id, fields, Value::Int(delivered), mark] = array(entry)? else { return None };
            let entry = read(Value::Array(vec![id, fields]), u32::try_from(delivered).unwrap_or(u32::MAX))?;
            // Another program may have written other data.
            Some(StreamEntry { mark: text(mark).and_then(|mark| RetryMark::parse(&mark)), ..entry })
        });
        Some(IdleEntries { cursor: text(cursor)?, entries: entries.collect::<Option<_>>()?, gone })
    };
    parts(value).ok_or_else(|| unexpected_reply("XAUTOCLAIM"))
}

fn read(entry: Value, delivered: u32) -> Option<StreamEntry> {
    let [id, fields] = array(entry)?;
    let Value::Array(flat) = fields else { return None };
    let mut flat = flat.into_iter();
    let mut fields = Fields::new();
    while let Some(name) = flat.next() {
        fields.push((bytes(name)?, bytes(flat.next()?)?));
    }
    Some(StreamEntry { id: text(id)?, fields, delivered, mark: None })
}

fn array<const N: usize>(value: Value) -> Option<[Value; N]> {
    let Value::Array(values) = value else { return None };
    values.try_into().ok()
}

fn bytes(value: Value) -> Option<Vec<u8>> {
    let Value::BulkString(bytes) = value else { return None };
    Some(bytes)
}

fn text(value: Value) -> Option<String> {
    String::from_utf8(bytes(value)?).ok()
}

fn unexpected_reply(command: &str) -> SourceError {
    SourceError::new(SourceErrorKind::Fatal, format!("{command}: unexpected reply"))
}
