//! What a key may be made of.
use std::borrow::Cow;
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest, Sha256};

use crate::KeyError;

/// A key's parts, length-prefixed: `("a|b", "c")` and `("a", "b|c")` stay apart. Nothing is normalised: case,
/// trailing blanks and Unicode forms count.
#[derive(Clone, Default)]
pub struct Parts {
    bytes: Vec<u8>,
    count: usize,
    /// The first that is empty, and whether it is missing.
    blank: Option<(usize, bool)>,
    size: usize,
}

impl Parts {
    /// The longest key taken, in bytes over all parts.
    pub const MAX: usize = 1024;

    /// Adds a part. An empty one makes the whole key an error.
    pub fn push(&mut self, part: impl AsRef<[u8]>) {
        let part = part.as_ref();
        if part.is_empty() {
            self.blank.get_or_insert((self.count, false));
        }
        self.count += 1;
        self.size = self.size.saturating_add(part.len());
        // Too long is refused later; until then nothing of it is copied.
        if self.size <= Self::MAX {
            self.bytes.reserve(8 + part.len());
            self.bytes.extend((part.len() as u64).to_le_bytes());
            self.bytes.extend(part);
        }
    }

    /// Adds a part that is not there, which makes the whole key an error as an empty one does.
    pub fn push_missing(&mut self) {
        self.blank.get_or_insert((self.count, true));
        self.push("");
    }

    /// Whether the whole of it is one part, which is missing.
    pub(crate) fn is_missing(&self) -> bool {
        self.count == 1 && matches!(self.blank, Some((_, true)))
    }

    pub(super) fn encoded(&self) -> &[u8] {
        &self.bytes
    }

    pub(super) fn check(&self, scene: &str, what: &str) -> Result<(), KeyError> {
        let scene = || scene.into();
        let empty = |what: Box<str>, missing| Err(KeyError::Empty { scene: scene(), what, missing });
        match self.blank {
            Some((at, missing)) if self.count > 1 => empty(format!("{what}, part {}", at + 1).into(), missing),
            Some((_, missing)) => empty(what.into(), missing),
            None if self.count == 0 => empty(what.into(), true),
            None if self.size > Self::MAX => {
                Err(KeyError::TooLong { scene: scene(), what: what.into(), bytes: self.size, limit: Self::MAX })
            }
            None => Ok(()),
        }
    }

    /// The parts as text, joined by " / "; what is not visible is escaped.
    pub(super) fn readable(&self) -> String {
        let (mut rest, mut out) = (&self.bytes[..], String::new());
        while let Some((length, tail)) = rest.split_first_chunk() {
            let length = usize::try_from(u64::from_le_bytes(*length)).unwrap_or(usize::MAX);
            let (part, tail) = tail.split_at_checked(length).unwrap_or((tail, &[]));
            if !out.is_empty() {
                out.push_str(" / ");
            }
            for chunk in part.utf8_chunks() {
                out.extend(chunk.valid().chars().flat_map(char::escape_debug));
                out.extend(chunk.invalid().iter().map(|byte| format!("\\x{byte:02x}")));
            }
            rest = tail;
        }
        out
    }
}

/// A key is never shown: it may be a card number or an address.
impl fmt::Debug for Parts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Parts({} of {} bytes)", self.count, self.size)
    }
}

/// A fixed-length stand-in for a key that is too long: SHA-256, 43 characters.
///
/// ```
/// let key = idempotent_core::key_hash("x".repeat(5_000));
/// assert_eq!(key.len(), 43);
/// ```
#[must_use]
pub fn key_hash(long: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(Sha256::digest(long))
}

/// A value a key may be made of: text, bytes, integers, and options, references and tuples of those. A number
/// and its decimal text are the same key, since producers disagree on which to send. A missing value is an
/// error when the key is built, never a shared constant. Floats are no keys: NaN differs from itself.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be part of an idempotency key",
    label = "must be text, bytes, an integer, or implement `KeyPart`",
    note = "use a string, bytes, an integer, an Option or a tuple of those, `value.to_string()`, or implement `KeyPart`"
)]
pub trait KeyPart {
    /// Adds its part or parts.
    fn feed(&self, parts: &mut Parts);
}

macro_rules! by_bytes {
    ($($ty:ty)*) => {$(
        impl KeyPart for $ty {
            fn feed(&self, parts: &mut Parts) { parts.push(self) }
        }
    )*};
}
by_bytes!(str String [u8] Vec<u8>);

macro_rules! by_text {
    ($($ty:ty)*) => {$(
        impl KeyPart for $ty {
            fn feed(&self, parts: &mut Parts) { parts.push(self.as_bytes()) }
        }
    )*};
}
by_text!(Box<str> Rc<str> Arc<str> Cow<'_, str>);

impl<const N: usize> KeyPart for [u8; N] {
    fn feed(&self, parts: &mut Parts) {
        parts.push(self);
    }
}

impl<T: KeyPart + ?Sized> KeyPart for &T {
    fn feed(&self, parts: &mut Parts) {
        (**self).feed(parts);
    }
}

impl<T: KeyPart> KeyPart for Option<T> {
    fn feed(&self, parts: &mut Parts) {
        match self {
            Some(part) => part.feed(parts),
            None => parts.push_missing(),
        }
    }
}

macro_rules! by_display {
    ($($ty:ty),*) => {$(
        impl KeyPart for $ty {
            fn feed(&self, parts: &mut Parts) { parts.push(self.to_string()) }
        }
    )*};
}
by_display!(u8, u16, u32, u64, u128, usize, i8, i16, i32, i64, i128, isize, bool, char);

macro_rules! tuples {
    ($(($($name:ident)+))*) => {$(
        impl<$($name: KeyPart),+> KeyPart for ($($name,)+) {
            #[allow(non_snake_case)]
            fn feed(&self, parts: &mut Parts) { let ($($name,)+) = self; $($name.feed(parts);)+ }
        }
    )*};
}
tuples! { (A) (A B) (A B C) (A B C D) (A B C D E) (A B C D E F) }

/// Takes the key out of a request or delivery: a strategy for layers and brokers, which have no handler's
/// arguments to name. Any function from a reference to a [`KeyPart`] is one.
pub trait KeyExtractor<Req: ?Sized>: Send + Sync {
    /// Adds the key's parts; nothing added means that the request has no key.
    fn extract(&self, request: &Req, parts: &mut Parts);
}

impl<Req: ?Sized, F, K> KeyExtractor<Req> for F
where
    F: Fn(&Req) -> K + Send + Sync,
    K: KeyPart,
{
    fn extract(&self, request: &Req, parts: &mut Parts) {
        self(request).feed(parts);
    }
}

impl KeyPart for Parts {
    fn feed(&self, parts: &mut Parts) {
        parts.bytes.extend(&self.bytes);
        if let Some((at, missing)) = self.blank {
            parts.blank.get_or_insert((parts.count + at, missing));
        }
        parts.count += self.count;
        parts.size = parts.size.saturating_add(self.size);
    }
}
