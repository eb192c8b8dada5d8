//! The idempotency key of a request. Errors and logs never contain it.
use std::fmt;

use http::header::{HeaderMap, HeaderName};
use idempotent_core::{KeyPart, Parts};
use sfv::{BareItem, Item, Parser};

/// The syntax of the key header.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub enum KeySyntax {
    /// Parses a value that begins with `"` as an RFC 9651 string and takes any other value as it is. Both forms yield
    /// the same key. This is the default: the IETF draft requires strings, but most clients send bare values.
    #[default]
    Lenient,
    /// Accepts only RFC 9651 strings, as the draft requires.
    Structured,
    /// Takes the value as it is.
    Bare,
}

/// The required format of a key.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub enum KeyFormat {
    /// Accepts all keys. This is the default.
    #[default]
    Any,
    /// Accepts UUIDs in the hyphenated form: 8-4-4-4-12 hexadecimal digits.
    Uuid,
    /// Accepts the keys for which this function returns true.
    Accepted(fn(&str) -> bool),
}

/// The rules for reading a key from a request.
///
/// ```
/// use http::HeaderMap;
/// use idempotent_tower::KeyRules;
///
/// let mut headers = HeaderMap::new();
/// headers.insert("idempotency-key", "\"8e03978e\"".parse()?);
/// assert_eq!(KeyRules::default().read(&headers)?.unwrap().as_str(), "8e03978e");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct KeyRules {
    header: HeaderName,
    syntax: KeySyntax,
    min_len: usize,
    max_len: usize,
    format: KeyFormat,
}

const HEADER: HeaderName = HeaderName::from_static("idempotency-key");

impl Default for KeyRules {
    fn default() -> Self {
        Self { header: HEADER, syntax: KeySyntax::Lenient, min_len: 1, max_len: 255, format: KeyFormat::Any }
    }
}

impl KeyRules {
    /// Sets the header that contains the key.
    ///
    /// # Default
    /// `Idempotency-Key`
    pub fn header(mut self, name: HeaderName) -> Self {
        self.header = name;
        self
    }

    /// Sets the syntax of the header.
    ///
    /// # Default
    /// [`KeySyntax::Lenient`]
    pub fn syntax(mut self, syntax: KeySyntax) -> Self {
        self.syntax = syntax;
        self
    }

    /// Sets the smallest number of characters, without quotes. The value 0 means 1.
    ///
    /// # Default
    /// 1
    pub fn min_len(mut self, characters: usize) -> Self {
        self.min_len = characters.max(1);
        self
    }

    /// Sets the largest number of characters, without quotes. The executor accepts at most 1,024 bytes.
    ///
    /// # Default
    /// 255
    pub fn max_len(mut self, characters: usize) -> Self {
        self.max_len = characters;
        self
    }

    /// Sets the required format.
    ///
    /// # Default
    /// [`KeyFormat::Any`]
    pub fn format(mut self, format: KeyFormat) -> Self {
        self.format = format;
        self
    }

    /// Returns the name of the header.
    #[must_use]
    pub fn header_name(&self) -> &HeaderName {
        &self.header
    }

    /// Reads the key of a request. Returns `None` without the header.
    ///
    /// # Errors
    /// [`InvalidKey`] if the header contains no valid key.
    pub fn read(&self, headers: &HeaderMap) -> Result<Option<IdempotencyKey>, InvalidKey> {
        let mut lines = headers.get_all(&self.header).iter();
        let Some(line) = lines.next() else { return Ok(None) };
        if lines.next().is_some() {
            return Err(InvalidKey::SeveralLines);
        }
        let value = line.as_bytes().trim_ascii();
        let text = match self.syntax {
            KeySyntax::Lenient if !value.starts_with(b"\"") => bare(value)?,
            KeySyntax::Bare => bare(value)?,
            KeySyntax::Lenient | KeySyntax::Structured => string(value)?,
        };
        self.checked(text).map(Some)
    }

    /// Checks a key from another source than the header by the same rules.
    ///
    /// # Errors
    /// [`InvalidKey`] if the key breaks a rule.
    pub fn checked(&self, text: String) -> Result<IdempotencyKey, InvalidKey> {
        let Self { min_len, max_len, .. } = *self;
        let length = text.chars().count();
        if !(min_len..=max_len).contains(&length) {
            return Err(InvalidKey::Length { length, min_len, max_len });
        }
        if text.trim().is_empty() {
            return Err(InvalidKey::Blank);
        }
        let fits = match self.format {
            KeyFormat::Any => true,
            KeyFormat::Uuid => is_uuid(&text),
            KeyFormat::Accepted(accepts) => accepts(&text),
        };
        if fits { Ok(IdempotencyKey(text.into())) } else { Err(InvalidKey::Format) }
    }
}

/// Parses visible ASCII without characters that have a meaning in structured headers.
fn bare(value: &[u8]) -> Result<String, InvalidKey> {
    let taken = |byte: &u8| byte.is_ascii_graphic() && !b"\",;\\".contains(byte);
    match std::str::from_utf8(value) {
        Ok(text) if value.iter().all(taken) => Ok(text.to_owned()),
        _ if value.contains(&b',') => Err(InvalidKey::List),
        _ => Err(InvalidKey::Characters),
    }
}

/// Parses an RFC 9651 string item. Its parameters are ignored.
fn string(value: &[u8]) -> Result<String, InvalidKey> {
    match Parser::new(value).parse::<Item>() {
        Ok(Item { bare_item: BareItem::String(text), .. }) => Ok(text.as_str().to_owned()),
        _ => Err(InvalidKey::NotAString),
    }
}

fn is_uuid(text: &str) -> bool {
    let hyphens = [8, 13, 18, 23];
    let fits = |(at, byte): (usize, u8)| if hyphens.contains(&at) { byte == b'-' } else { byte.is_ascii_hexdigit() };
    text.len() == 36 && text.bytes().enumerate().all(fits)
}

/// The reason why a header contains no valid key. Never contains the key.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum InvalidKey {
    /// The header occurs more than once.
    SeveralLines,
    /// The header contains a list of values.
    List,
    /// The value is not an RFC 9651 string.
    NotAString,
    /// An unquoted key contains a character that is not allowed.
    Characters,
    /// The key is too short or too long.
    Length {
        /// The number of characters.
        length: usize,
        /// The smallest number accepted.
        min_len: usize,
        /// The largest number accepted.
        max_len: usize,
    },
    /// The key consists of spaces.
    Blank,
    /// The key does not have the required format.
    Format,
}

impl fmt::Display for InvalidKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SeveralLines => f.write_str("idempotency key: the header occurs more than once; send it once"),
            Self::List => f.write_str("idempotency key: the header contains a list; send one key"),
            Self::NotAString => f.write_str(
                "idempotency key: not an RFC 9651 string; send it as \"…\", with \\\" and \\\\ as the only escapes",
            ),
            Self::Characters => f.write_str(
                "idempotency key: invalid character in an unquoted key; use visible ASCII without quotes, commas, \
                 semicolons and backslashes",
            ),
            Self::Length { length, min_len, max_len } => {
                write!(f, "idempotency key: has {length} characters; send {min_len} to {max_len}")
            }
            Self::Blank => f.write_str("idempotency key: consists of spaces; send a different key for each operation"),
            Self::Format => f.write_str("idempotency key: wrong format; see the documentation of this service"),
        }
    }
}

impl std::error::Error for InvalidKey {}

/// The idempotency key of a request, without quotes.
///
/// With the feature `axum` it is an extractor that uses [`KeyRules::default`]. A missing or malformed key is rejected
/// with a [`Problem`](crate::Problem). `Option<IdempotencyKey>` accepts a missing key, but not a malformed one.
#[derive(Clone, Eq, Hash, PartialEq)]
pub struct IdempotencyKey(Box<str>);

impl IdempotencyKey {
    /// Returns the key. It may be personal data: do not log it.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl KeyPart for IdempotencyKey {
    fn write_to(&self, parts: &mut Parts) {
        self.as_str().write_to(parts);
    }
}

/// Shows only the length of the key.
impl fmt::Debug for IdempotencyKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "IdempotencyKey({} characters)", self.0.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_keys_is_reported_as_a_list() {
        assert_eq!(bare(b"k-1"), Ok("k-1".to_owned()));
        assert_eq!(bare(b"k-1,k-2"), Err(InvalidKey::List));
        assert_eq!(bare(b"k 1"), Err(InvalidKey::Characters));
        assert_eq!(bare(b"k\xff"), Err(InvalidKey::Characters));
    }
}
