//! Parsing of script replies, and the errors of calls.
use std::sync::Arc;

use idempotent_core::{StoreError, StoreErrorKind};
use idempotent_mq::{Cancelled, DelayError, DelayErrorKind, SourceError, SourceErrorKind};
use redis::Value;

/// The remaining items of an array.
pub(crate) struct ReplyItems(std::vec::IntoIter<Value>);

impl ReplyItems {
    pub(crate) fn of(value: Value) -> Option<Self> {
        match value {
            Value::Array(items) => Some(Self(items.into_iter())),
            _ => None,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.len() == 0
    }

    pub(crate) fn bytes(&mut self) -> Option<Vec<u8>> {
        bytes(self.0.next()?)
    }

    /// Returns a nested array. An empty text represents an empty array.
    pub(crate) fn all(&mut self) -> Option<Vec<Value>> {
        match self.0.next()? {
            Value::Array(items) => Some(items),
            Value::BulkString(none) if none.is_empty() => Some(Vec::new()),
            _ => None,
        }
    }

    pub(crate) fn text(&mut self) -> Option<String> {
        String::from_utf8(self.bytes()?).ok()
    }

    /// Returns a number. The scripts send long numbers as text.
    pub(crate) fn signed(&mut self) -> Option<i64> {
        match self.0.next()? {
            Value::Int(number) => Some(number),
            Value::BulkString(bytes) => std::str::from_utf8(&bytes).ok()?.parse().ok(),
            _ => None,
        }
    }

    pub(crate) fn number(&mut self) -> Option<u64> {
        self.signed()?.try_into().ok()
    }
}

pub(crate) fn bytes(value: Value) -> Option<Vec<u8>> {
    match value {
        Value::BulkString(bytes) => Some(bytes),
        Value::SimpleString(text) => Some(text.into_bytes()),
        _ => None,
    }
}

/// Splits a stored value into the name of the message and its payload.
pub(crate) fn split_stored(value: &[u8]) -> Option<(String, &[u8])> {
    let mut words = value.splitn(3, |byte| *byte == b' ');
    let (_, size, rest) = (words.next()?, words.next()?, words.next()?);
    let size = std::str::from_utf8(size).ok()?.parse().ok()?;
    let (name, payload) = rest.split_at_checked(size)?;
    Some((String::from_utf8(name.to_vec()).ok()?, payload))
}

pub(crate) fn items(reply: Value, doing: &str) -> Result<ReplyItems, DelayError> {
    ReplyItems::of(reply).ok_or_else(|| delay_error(doing, unexpected_reply(doing)))
}

pub(crate) fn count(reply: &Value, doing: &str) -> Result<u64, DelayError> {
    match reply {
        Value::Int(count) => Ok(u64::try_from(*count).unwrap_or_default()),
        _ => Err(delay_error(doing, unexpected_reply(doing))),
    }
}

pub(crate) fn cancelled(reply: &Value) -> Result<Cancelled, DelayError> {
    match count(reply, "cancelling")? {
        0 => Ok(Cancelled::Unknown),
        1 => Ok(Cancelled::Done),
        _ => Ok(Cancelled::Delivering),
    }
}

/// Converts an error for producers. The messages of a batch share the error.
pub(crate) fn delay_error(doing: &str, error: impl Into<Arc<StoreError>>) -> DelayError {
    let error = error.into();
    let kind = match error.kind() {
        StoreErrorKind::NotApplied => DelayErrorKind::NotApplied,
        StoreErrorKind::Ambiguous => DelayErrorKind::Ambiguous,
        _ => DelayErrorKind::Refused,
    };
    DelayError::new(kind, format!("{doing}: {error}")).with_cause(error)
}

/// Converts an error for consumers.
pub(crate) fn source_error(doing: &str, error: StoreError) -> SourceError {
    let kind = match error.kind() {
        StoreErrorKind::NotApplied | StoreErrorKind::Ambiguous => SourceErrorKind::Transient,
        _ => SourceErrorKind::Fatal,
    };
    SourceError::new(kind, format!("{doing}: {error}")).with_cause(error)
}

/// Returns the error for a reply that the script never sends.
pub(crate) fn unexpected_reply(doing: &str) -> StoreError {
    let text = format!("{doing}: unexpected script reply; is a proxy rewriting responses?");
    StoreError::new(StoreErrorKind::Ambiguous).because(text)
}
