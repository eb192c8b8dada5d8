//! Parsing of script replies.
use idempotent_mq::{Cancelled, DelayError};
use redis::Value;

use super::servers::{delay_error, unexpected_reply};

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
