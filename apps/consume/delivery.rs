//! A line of the input, and the key in it.
use std::fmt;
use std::str::FromStr;

use idempotent::key::Parts;
use serde::Deserializer as _;
use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;
use tokio::sync::OwnedSemaphorePermit;

/// One delivery: a line and its key.
#[derive(Debug)]
pub(crate) struct Delivery {
    /// Counted from 1, blank lines too.
    pub(crate) number: u64,
    pub(crate) key: String,
    /// The line as it was read, including its end.
    pub(crate) line: Vec<u8>,
    /// Its share of the memory that unsettled deliveries may take, given back when it is dropped.
    pub(crate) _room: OwnedSemaphorePermit,
}

/// A dotted path to a field.
#[derive(Clone, Debug)]
pub(crate) struct Field(String);

impl FromStr for Field {
    type Err = &'static str;

    fn from_str(path: &str) -> Result<Self, Self::Err> {
        match path.split('.').any(str::is_empty) {
            true => Err("a field's name is empty; say `id`, or `order.id` where it lies deeper"),
            false => Ok(Self(path.to_owned())),
        }
    }
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Field {
    /// The key in `line`, or why there is none. A number counts as its own text.
    ///
    /// Only the path to the field is taken apart; the rest is checked to be JSON and copied nowhere.
    pub(crate) fn key_in(&self, line: &[u8]) -> Result<String, Reason> {
        let text = std::str::from_utf8(line).map_err(|error| format!("not UTF-8: {error}"))?;
        let mut value: &RawValue = serde_json::from_str(text).map_err(|error| format!("not JSON: {error}"))?;
        if !value.get().starts_with('{') {
            return Err(format!("not a JSON object but {}", kind(value)).into());
        }
        for name in self.0.split('.') {
            if !value.get().starts_with('{') {
                return Err(Reason::Missing(format!("no `{self}`: what should hold `{name}` is {}", kind(value))));
            }
            let found = serde_json::Deserializer::from_str(value.get()).deserialize_map(Member(name));
            let found = found.map_err(|error| format!("not JSON: {error}"))?;
            value = found.ok_or_else(|| Reason::Missing(format!("no `{self}`")))?;
        }
        let key = match value.get().as_bytes().first() {
            Some(b'"') => serde_json::from_str(value.get()).map_err(|error| format!("`{self}` is no text: {error}"))?,
            Some(b'-' | b'0'..=b'9') => value.get().to_owned(),
            _ => return Err(format!("`{self}` is {}, neither string nor number", kind(value)).into()),
        };
        match key.len() {
            0 => Err(format!("`{self}` is empty").into()),
            length if length > Parts::MAX => {
                Err(format!("`{self}` has {length} bytes, more than {}", Parts::MAX).into())
            }
            _ => Ok(key),
        }
    }
}

/// The reason why a line has no key.
#[derive(Debug)]
pub(crate) enum Reason {
    /// The line is an object without the field.
    Missing(String),
    Unusable(String),
}

impl From<String> for Reason {
    fn from(text: String) -> Self {
        Self::Unusable(text)
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing(text) | Self::Unusable(text) => f.write_str(text),
        }
    }
}

/// The names of the fields of `line`, in its order.
pub(crate) fn fields_of(line: &[u8]) -> Option<Vec<String>> {
    let mut deserializer = serde_json::Deserializer::from_slice(line);
    deserializer.deserialize_map(Names).ok()
}

struct Names;

impl<'de> Visitor<'de> for Names {
    type Value = Vec<String>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Self::Value, A::Error> {
        let mut names = Vec::new();
        while let Some((name, IgnoredAny)) = members.next_entry()? {
            names.push(name);
        }
        Ok(names)
    }
}

fn kind(value: &RawValue) -> &'static str {
    match value.get().as_bytes().first() {
        Some(b'{') => "an object",
        Some(b'[') => "an array",
        Some(b'"') => "a string",
        Some(b't' | b'f') => "a boolean",
        Some(b'n') => "null",
        _ => "a number",
    }
}

/// The member of this name, unread; the last one if there are several.
struct Member<'a>(&'a str);

impl<'de> Visitor<'de> for Member<'_> {
    type Value = Option<&'de RawValue>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Self::Value, A::Error> {
        let mut found = None;
        while let Some(name) = members.next_key::<String>()? {
            if name == self.0 {
                found = Some(members.next_value()?);
            } else {
                members.next_value::<IgnoredAny>()?;
            }
        }
        Ok(found)
    }
}

/// Blank lines are no deliveries.
pub(crate) fn is_blank(line: &[u8]) -> bool {
    line.trim_ascii().is_empty()
}
