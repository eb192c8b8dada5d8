//! The parts of a key, and the types that can be one.
use std::borrow::Cow;
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest, Sha256};

use crate::KeyError;

/// The parts of a key, each with its length, so that `("a|b", "c")` and `("a", "b|c")` differ.
///
/// Parts are not normalised: case, trailing blanks and Unicode forms matter.
#[derive(Clone, Default)]
pub struct Parts {
    bytes: Vec<u8>,
    count: usize,
    /// The index of the first empty part, and whether that part is missing.
    blank: Option<(usize, bool)>,
    size: usize,
}

impl Parts {
    /// The maximum length of a key, in bytes over all parts.
    pub const MAX: usize = 1024;

    /// Adds a part. An empty part makes the whole key an error.
    pub fn push(&mut self, part: impl AsRef<[u8]>) {
        let part = part.as_ref();
        if part.is_empty() {
            self.blank.get_or_insert((self.count, false));
        }
        self.count += 1;
        self.size = self.size.saturating_add(part.len());
        // A key that is too long becomes an error later. Until then nothing more is copied.
        if self.size <= Self::MAX {
            self.bytes.reserve(8 + part.len());
            self.bytes.extend((part.len() as u64).to_le_bytes());
            self.bytes.extend(part);
        }
    }

    /// Adds a missing part. Like an empty part, it makes the whole key an error.
    pub fn push_missing(&mut self) {
        self.blank.get_or_insert((self.count, true));
        self.push("");
    }

    /// Returns whether the key consists of one missing part.
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

    /// Returns the parts as text, joined by " / ", with invisible characters escaped.
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

/// Prints no part, because a key may be a card number or an address.
impl fmt::Debug for Parts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Parts({} of {} bytes)", self.count, self.size)
    }
}

/// Returns a replacement of fixed length for a key that is too long: its SHA-256, 43 characters.
///
/// ```
/// let key = idempotent_core::key_hash("x".repeat(5_000));
/// assert_eq!(key.len(), 43);
/// ```
#[must_use]
pub fn key_hash(long: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(Sha256::digest(long))
}

/// The longest name of a caller in bytes that becomes part of a key as it is. A longer name is hashed: issuers choose the length
/// of subjects, and [`Parts::MAX`] limits the whole key.
const MAX_CALLER: usize = 512;

/// The name of an HTTP or gRPC caller as a tenant, or `None` for the anonymous caller. Named and anonymous callers have distinct
/// encodings, whatever the name.
#[doc(hidden)]
#[derive(Clone, Copy)]
pub struct CallerName<'a>(pub Option<&'a str>);

impl KeyPart for CallerName<'_> {
    fn write_to(&self, parts: &mut Parts) {
        match self.0 {
            Some(name) if name.len() > MAX_CALLER => ("long", key_hash(name)).write_to(parts),
            Some(name) => ("named", name).write_to(parts),
            None => "anonymous".write_to(parts),
        }
    }
}

/// Omits the name, which may be personal data.
impl fmt::Debug for CallerName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "CallerName(named)" } else { "CallerName(anonymous)" })
    }
}

/// A value that can be part of a key: text, bytes, integers, and options, references and tuples of these.
///
/// A number and its decimal text are the same key, because producers differ in which they send. A missing value is an
/// error when the key is built, never a shared constant. Floating-point numbers are not supported: NaN differs from
/// itself.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be part of an idempotency key",
    label = "must be text, bytes, an integer, or implement `KeyPart`",
    note = "use a string, bytes, an integer, an Option or a tuple of those, `value.to_string()`, or implement `KeyPart`"
)]
pub trait KeyPart {
    /// Adds the part or parts of this value.
    fn write_to(&self, parts: &mut Parts);
}

macro_rules! by_bytes {
    ($($ty:ty)*) => {$(
        impl KeyPart for $ty {
            fn write_to(&self, parts: &mut Parts) { parts.push(self) }
        }
    )*};
}
by_bytes!(str String [u8] Vec<u8>);

macro_rules! by_text {
    ($($ty:ty)*) => {$(
        impl KeyPart for $ty {
            fn write_to(&self, parts: &mut Parts) { parts.push(self.as_bytes()) }
        }
    )*};
}
by_text!(Box<str> Rc<str> Arc<str> Cow<'_, str>);

impl<const N: usize> KeyPart for [u8; N] {
    fn write_to(&self, parts: &mut Parts) {
        parts.push(self);
    }
}

impl<T: KeyPart + ?Sized> KeyPart for &T {
    fn write_to(&self, parts: &mut Parts) {
        (**self).write_to(parts);
    }
}

impl<T: KeyPart> KeyPart for Option<T> {
    fn write_to(&self, parts: &mut Parts) {
        match self {
            Some(part) => part.write_to(parts),
            None => parts.push_missing(),
        }
    }
}

macro_rules! by_display {
    ($($ty:ty),*) => {$(
        impl KeyPart for $ty {
            fn write_to(&self, parts: &mut Parts) { parts.push(self.to_string()) }
        }
    )*};
}
by_display!(u8, u16, u32, u64, u128, usize, i8, i16, i32, i64, i128, isize, bool, char);

macro_rules! tuples {
    ($(($($name:ident)+))*) => {$(
        impl<$($name: KeyPart),+> KeyPart for ($($name,)+) {
            #[allow(non_snake_case)]
            fn write_to(&self, parts: &mut Parts) { let ($($name,)+) = self; $($name.write_to(parts);)+ }
        }
    )*};
}
tuples! { (A) (A B) (A B C) (A B C D) (A B C D E) (A B C D E F) }

/// Extracts the key from a request or delivery, for layers and consumers that have no handler arguments to name.
///
/// Any function from a reference to a [`KeyPart`] implements this trait.
pub trait KeyExtractor<Req: ?Sized>: Send + Sync {
    /// Adds the parts of the key. If nothing is added, the request has no key.
    fn extract(&self, request: &Req, parts: &mut Parts);
}

impl<Req: ?Sized, F, K> KeyExtractor<Req> for F
where
    F: Fn(&Req) -> K + Send + Sync,
    K: KeyPart,
{
    fn extract(&self, request: &Req, parts: &mut Parts) {
        self(request).write_to(parts);
    }
}

impl KeyPart for Parts {
    fn write_to(&self, parts: &mut Parts) {
        parts.bytes.extend(&self.bytes);
        if let Some((at, missing)) = self.blank {
            parts.blank.get_or_insert((parts.count + at, missing));
        }
        parts.count += self.count;
        parts.size = parts.size.saturating_add(self.size);
    }
}
