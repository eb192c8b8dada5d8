//! The key of a request: read from its header, checked, never echoed.
use std::fmt;

use http::header::{HeaderMap, HeaderName};
use idempotent_core::{KeyPart, Parts};
use sfv::{BareItem, Item, Parser};

/// How the header's value is written.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub enum KeySyntax {
    /// A value that begins with `"` is an RFC 9651 string, any other is taken as it stands; both spell the same key. The
    /// default: the IETF draft asks for strings, and what clients send in practice is bare.
    #[default]
    Lenient,
    /// An RFC 9651 string only, as the draft has it.
    Structured,
    /// As it stands only.
    Bare,
}

/// What a key must look like, beyond its syntax.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub enum KeyFormat {
    /// Anything. The default.
    #[default]
    Any,
    /// A UUID in its usual form: 8-4-4-4-12 hexadecimal digits.
    Uuid,
    /// What this function accepts.
    Accepted(fn(&str) -> bool),
}

/// Where the key stands and what it must look like.
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
    /// The header it stands in.
    ///
    /// # Default
    /// `Idempotency-Key`
    pub fn header(mut self, name: HeaderName) -> Self {
        self.header = name;
        self
    }

    /// How it is written.
    ///
    /// # Default
    /// [`KeySyntax::Lenient`]
    pub fn syntax(mut self, syntax: KeySyntax) -> Self {
        self.syntax = syntax;
        self
    }

    /// The fewest characters taken, without quotes. Never fewer than one.
    ///
    /// # Default
    /// 1
    pub fn min_len(mut self, characters: usize) -> Self {
        self.min_len = characters.max(1);
        self
    }

    /// The most characters taken, without quotes; the executor takes 1,024 bytes.
    ///
    /// # Default
    /// 255
    pub fn max_len(mut self, characters: usize) -> Self {
        self.max_len = characters;
        self
    }

    /// What it must look like.
    ///
    /// # Default
    /// [`KeyFormat::Any`]
    pub fn format(mut self, format: KeyFormat) -> Self {
        self.format = format;
        self
    }

    /// The header's name.
    #[must_use]
    pub fn header_name(&self) -> &HeaderName {
        &self.header
    }

    /// The request's key; `None` without the header.
    ///
    /// # Errors
    /// [`InvalidKey`] if there is a header but no usable key in it.
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

    /// A key from elsewhere, by the same rules.
    ///
    /// # Errors
    /// [`InvalidKey`] if it breaks one.
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

/// Visible ASCII, without what has a meaning of its own in a header.
fn bare(value: &[u8]) -> Result<String, InvalidKey> {
    let taken = |byte: &u8| byte.is_ascii_graphic() && !b"\",;\\".contains(byte);
    match std::str::from_utf8(value) {
        Ok(text) if value.iter().all(taken) => Ok(text.to_owned()),
        _ if value.contains(&b',') => Err(InvalidKey::List),
        _ => Err(InvalidKey::Characters),
    }
}

/// An RFC 9651 item that is a string; its parameters mean nothing here.
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

/// Why there is no key in a header that is there. The key itself is never shown.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum InvalidKey {
    /// The header comes more than once.
    SeveralLines,
    /// A list of values.
    List,
    /// Not an RFC 9651 string.
    NotAString,
    /// A character that a key written bare may not have.
    Characters,
    /// Too short or too long.
    Length {
        /// Its characters.
        length: usize,
        /// The fewest taken.
        min_len: usize,
        /// The most taken.
        max_len: usize,
    },
    /// Nothing but spaces.
    Blank,
    /// Not of the format asked for.
    Format,
}

impl fmt::Display for InvalidKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SeveralLines => f.write_str("the key's header comes more than once: send it once"),
            Self::List => f.write_str("the key's header holds a list: send one key"),
            Self::NotAString => f.write_str(
                "the key is not a quoted string by RFC 9651: write it as \"…\", with \\\" and \\\\ as the only escapes",
            ),
            Self::Characters => f.write_str(
                "the key has a character it may not have unquoted: use visible ASCII without quotes, commas, semicolons \
                 and backslashes",
            ),
            Self::Length { length, min_len, max_len } => {
                write!(f, "the key has {length} characters, {min_len} to {max_len} are taken")
            }
            Self::Blank => f.write_str("the key consists of spaces: send one that differs for each operation"),
            Self::Format => f.write_str("the key is not of the format this service asks for"),
        }
    }
}

impl std::error::Error for InvalidKey {}

/// A request's key, without its quotes.
///
/// With the feature `axum` it is an extractor, by [`KeyRules::default`]: a missing or malformed key is answered with a
/// [`Problem`](crate::Problem); as `Option<IdempotencyKey>` it may be missing, but not malformed.
#[derive(Clone, Eq, Hash, PartialEq)]
pub struct IdempotencyKey(Box<str>);

impl IdempotencyKey {
    /// The key. It may be personal: not for logs.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl KeyPart for IdempotencyKey {
    fn feed(&self, parts: &mut Parts) {
        self.as_str().feed(parts);
    }
}

/// Keys are never shown.
impl fmt::Debug for IdempotencyKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "IdempotencyKey({} characters)", self.0.len())
    }
}
