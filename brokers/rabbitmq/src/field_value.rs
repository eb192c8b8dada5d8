//! Values of queue arguments and headers.
use std::collections::BTreeMap;

use lapin::types::{AMQPValue, FieldTable, ShortString};

/// A value of an argument or header.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum FieldValue {
    /// A truth value, as in `x-single-active-consumer`.
    Bool(bool),
    /// A number, as in `x-max-length`.
    Number(i64),
    /// A text, as in `x-overflow`.
    Text(String),
    /// Arbitrary bytes.
    Bytes(Vec<u8>),
}

pub(crate) type Fields = BTreeMap<String, FieldValue>;

/// Encodes fields as a table of AMQP.
///
/// # Panics
/// A name is longer than 255 bytes, which the settings exclude.
pub(crate) fn field_table(fields: &Fields) -> FieldTable {
    let entries = fields.iter().map(|(name, value)| (ShortString::from(name.as_str()), value.into()));
    FieldTable::from(entries.collect::<BTreeMap<_, _>>())
}

impl From<&FieldValue> for AMQPValue {
    fn from(value: &FieldValue) -> Self {
        match value {
            FieldValue::Bool(value) => Self::Boolean(*value),
            FieldValue::Number(value) => Self::LongLongInt(*value),
            FieldValue::Text(value) => Self::LongString(value.as_str().into()),
            FieldValue::Bytes(value) => Self::ByteArray(value.as_slice().into()),
        }
    }
}

impl From<bool> for FieldValue {
    fn from(value: bool) -> Self {
        Self::Bool(value)
    }
}

impl From<i64> for FieldValue {
    fn from(value: i64) -> Self {
        Self::Number(value)
    }
}

impl From<&str> for FieldValue {
    fn from(value: &str) -> Self {
        Self::Text(value.to_owned())
    }
}

impl From<String> for FieldValue {
    fn from(value: String) -> Self {
        Self::Text(value)
    }
}

impl From<Vec<u8>> for FieldValue {
    fn from(value: Vec<u8>) -> Self {
        Self::Bytes(value)
    }
}
