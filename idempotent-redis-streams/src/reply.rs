//! What the server answers, taken apart.
use idempotent_mq::{SourceError, SourceErrorKind};
use redis::Value;

use crate::headers::Fields;

/// An entry, delivered.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) id: String,
    pub(crate) fields: Fields,
    /// How often, this time included.
    pub(crate) delivered: u32,
}

/// What a step of the search for idle entries found.
#[derive(Debug)]
pub(crate) struct Taken {
    /// Where to go on; `0-0` at the end.
    pub(crate) cursor: String,
    pub(crate) entries: Vec<Entry>,
    /// How many had been deleted or trimmed while they were pending.
    pub(crate) gone: i64,
}

/// The answer of `XREADGROUP` for one stream.
///
/// # Errors
/// `Fatal` if it is none.
pub(crate) fn fresh(value: Value) -> Result<Vec<Entry>, SourceError> {
    let entries = match value {
        Value::Nil => return Ok(Vec::new()),
        Value::Array(mut streams) => match streams.pop() {
            Some(Value::Array(mut stream)) => stream.pop(),
            _ => None,
        },
        _ => None,
    };
    let Some(Value::Array(entries)) = entries else { return Err(strange("XREADGROUP")) };
    let entries = entries.into_iter().map(|entry| read(entry, 1));
    entries.collect::<Option<_>>().ok_or_else(|| strange("XREADGROUP"))
}

/// The answer of `XRANGE`.
///
/// # Errors
/// `Fatal` if it is none.
pub(crate) fn range(value: Value) -> Result<Vec<Entry>, SourceError> {
    let Value::Array(entries) = value else { return Err(strange("XRANGE")) };
    let entries = entries.into_iter().map(|entry| read(entry, 1));
    entries.collect::<Option<_>>().ok_or_else(|| strange("XRANGE"))
}

/// The answer of the script `take`.
///
/// # Errors
/// `Fatal` if it is none.
pub(crate) fn taken(value: Value) -> Result<Taken, SourceError> {
    let parts = |value| {
        let [cursor, Value::Array(entries), Value::Int(gone)] = array(value)? else { return None };
        let entries = entries.into_iter().map(|entry| {
            let [id, fields, Value::Int(delivered)] = array(entry)? else { return None };
            read(Value::Array(vec![id, fields]), u32::try_from(delivered).unwrap_or(u32::MAX))
        });
        Some(Taken { cursor: text(cursor)?, entries: entries.collect::<Option<_>>()?, gone })
    };
    parts(value).ok_or_else(|| strange("XAUTOCLAIM"))
}

fn read(entry: Value, delivered: u32) -> Option<Entry> {
    let [id, fields] = array(entry)?;
    let Value::Array(flat) = fields else { return None };
    let mut flat = flat.into_iter();
    let mut fields = Fields::new();
    while let Some(name) = flat.next() {
        fields.push((bytes(name)?, bytes(flat.next()?)?));
    }
    Some(Entry { id: text(id)?, fields, delivered })
}

fn array<const N: usize>(value: Value) -> Option<[Value; N]> {
    let Value::Array(values) = value else { return None };
    values.try_into().ok()
}

fn bytes(value: Value) -> Option<Vec<u8>> {
    match value {
        Value::BulkString(bytes) => Some(bytes),
        Value::SimpleString(text) => Some(text.into_bytes()),
        _ => None,
    }
}

fn text(value: Value) -> Option<String> {
    String::from_utf8(bytes(value)?).ok()
}

fn strange(command: &str) -> SourceError {
    SourceError::new(SourceErrorKind::Fatal, format!("{command}: the server's answer is not understood"))
}
