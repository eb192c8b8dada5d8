//! Idempotency keys and the identities that they are derived from.
mod name;
mod part;

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;
use sha2::{Digest, Sha256};

pub(crate) use self::name::Name;
pub use self::part::{CallerName, KeyExtractor, KeyPart, Parts, key_hash};
use crate::KeyError;

/// The origin of a call. The scene selects the defaults and is a part of the identity.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum Scene {
    /// Message handlers.
    Mq,
    /// HTTP request handlers.
    Rest,
    /// A custom scene with the defaults of `rest`.
    Named(Cow<'static, str>),
}

impl Scene {
    /// Replaces a custom scene with the name of a built-in one, so that both have the same records and the same policy.
    pub(crate) fn canonical(self) -> Self {
        match &self {
            Self::Named(name) if name == "mq" => Self::Mq,
            Self::Named(name) if name == "rest" => Self::Rest,
            _ => self,
        }
    }

    /// Returns the name of the scene in keys, records and logs.
    #[must_use]
    pub fn as_str(&self) -> &str {
        match self {
            Self::Mq => "mq",
            Self::Rest => "rest",
            Self::Named(name) => name,
        }
    }
}

/// The identity of a call: namespace, tenant, scene, scope and key parts. A [`Key`] is the hash of an identity.
///
/// Each of the five fields is hashed with its length, so that different identities never produce the same input. None
/// of them becomes part of a pattern, a script or a statement.
#[derive(Clone, Debug)]
pub struct Identity {
    namespace: Option<Cow<'static, str>>,
    tenant: Option<Parts>,
    pub(crate) scene: Scene,
    pub(crate) scope: Name,
    parts: Parts,
    /// True if the parts are an issued token. Tokens have keys of their own kind, so a client cannot name another
    /// record.
    token: bool,
    what: Name,
}

impl Identity {
    /// Creates an identity.
    ///
    /// `scope` is the handler or consumer group. Two scopes each process the same message once.
    pub fn new(scene: Scene, scope: impl Into<Cow<'static, str>>, parts: &(impl KeyPart + ?Sized)) -> Self {
        let mut all = Parts::default();
        parts.write_to(&mut all);
        let (scene, scope, what) = (scene.canonical(), scope.into().into(), Name::Literal("key"));
        Self { namespace: None, tenant: None, scene, scope, parts: all, token: false, what }
    }

    /// Creates the identity of a message of a consumer group. Shares the texts, which are the same for all messages of the group.
    #[doc(hidden)]
    #[must_use]
    pub fn __of_message(group: Arc<str>, parts: Parts, what: Arc<str>) -> Self {
        let (scope, what) = (Name::Shared(group), Name::Shared(what));
        Self { namespace: None, tenant: None, scene: Scene::Mq, scope, parts, token: false, what }
    }

    /// Sets the namespace (the attribute's `prefix`), which overrides the executor's.
    #[must_use]
    pub fn prefix(mut self, namespace: impl Into<Cow<'static, str>>) -> Self {
        self.namespace = Some(namespace.into());
        self
    }

    /// Sets the tenant. Equal keys of different tenants are different keys.
    ///
    /// Like an empty key, an empty or missing tenant is an error.
    #[must_use]
    pub fn tenant(mut self, tenant: &(impl KeyPart + ?Sized)) -> Self {
        let mut parts = Parts::default();
        tenant.write_to(&mut parts);
        self.tenant = Some(parts);
        self
    }

    /// Returns the identity of another call of the same handler.
    pub(crate) fn sibling(&self, parts: Parts) -> Self {
        Self { parts, ..self.clone() }
    }

    /// Marks the parts as an issued token instead of a key that the caller chose.
    pub(crate) fn token(mut self) -> Self {
        self.token = true;
        self
    }

    /// Sets the description of the key that errors contain.
    #[must_use]
    pub fn described(mut self, what: impl Into<Cow<'static, str>>) -> Self {
        self.what = what.into().into();
        self
    }

    /// Returns the storage key, in the executor's `namespace` unless the identity has its own.
    ///
    /// # Errors
    /// Returns a [`KeyError`] if a part is empty, or if the parts are too long in total.
    pub fn key(&self, namespace: &str) -> Result<Key, KeyError> {
        let namespace = self.namespace.as_deref().unwrap_or(namespace);
        let scene = self.scene.as_str();
        for (part, name) in [("namespace", namespace), ("scene", scene), ("scope", &*self.scope)] {
            if name.is_empty() {
                return Err(KeyError::NoName { part });
            }
        }
        self.parts.check(scene, &self.what)?;
        let mut hash = Sha256::new();
        for field in [namespace, scene, &*self.scope] {
            hash.update((field.len() as u64).to_le_bytes());
            hash.update(field);
        }
        let kind = if self.token { 2 } else { 0 };
        match &self.tenant {
            // A missing tenant is an error, not a tenant shared by all callers without one.
            Some(tenant) => {
                tenant.check(scene, "tenant")?;
                hash.update([kind + 1]);
                hash.update((tenant.encoded().len() as u64).to_le_bytes());
                hash.update(tenant.encoded());
            }
            None => hash.update([kind]),
        }
        hash.update(self.parts.encoded());
        let mut short = [0; 16];
        short.copy_from_slice(&hash.finalize()[..16]);
        Ok(Key::new([namespace, ":", scene, ":", &*self.scope], u128::from_be_bytes(short)))
    }

    /// Returns the part of the key that operators may see.
    pub(crate) fn display(&self, policy: DisplayKey) -> Option<Arc<str>> {
        match policy {
            DisplayKey::Hash => None,
            DisplayKey::Full => Some(self.parts.readable().into()),
            DisplayKey::Mask(mask) => Some(mask(&self.parts.readable()).into()),
        }
    }
}

/// Returns the path of the function that contains a closure, without the function's type arguments.
///
/// Without type arguments, calls with a key of type `&str` and of type `String` have the same scope.
#[doc(hidden)]
#[must_use]
pub fn scope_of<F>(_: &F) -> &'static str {
    let path = std::any::type_name::<F>().trim_end_matches("::{{closure}}");
    if !path.ends_with('>') {
        return path;
    }
    let mut depth = 0usize;
    for (at, char) in path.char_indices().rev() {
        match char {
            // The arrow of a function type.
            '>' if path[..at].ends_with('-') => {}
            '>' => depth += 1,
            '<' => {
                depth -= 1;
                if depth == 0 {
                    return path[..at].trim_end_matches("::");
                }
            }
            _ => {}
        }
    }
    path
}

/// The part of a key that operators see in consuming, failed and dead records. Logs, spans and metrics always show the
/// hash.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum DisplayKey {
    /// The hash only. The default, because keys may be card numbers or addresses.
    #[default]
    Hash,
    /// The whole key, with control characters and other invisible characters escaped.
    Full,
    /// The result of this function.
    #[serde(skip)]
    Mask(fn(&str) -> String),
}

impl PartialEq for DisplayKey {
    /// Compares masks by their function pointers. A function that is inlined twice may differ from itself.
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Hash, Self::Hash) | (Self::Full, Self::Full) => true,
            (Self::Mask(a), Self::Mask(b)) => std::ptr::fn_addr_eq(*a, *b),
            _ => false,
        }
    }
}

/// A storage key: a readable part up to the scope, then a hash of the whole identity in braces.
///
/// The braces keep everything that belongs to one key in one slot of a Redis cluster.
///
/// ```
/// use idempotent_core::{Identity, Scene};
/// let key = Identity::new(Scene::Mq, "orders", "o-17").key("shop")?;
/// assert!(key.as_str().starts_with("shop:mq:orders:{") && key.as_str().ends_with('}'));
/// # Ok::<(), idempotent_core::KeyError>(())
/// ```
#[derive(Clone, Eq, PartialEq)]
pub struct Key {
    hash: u128,
    text: Arc<str>,
}

impl Key {
    /// The maximum length of the readable part in bytes. A longer one is truncated, since the hash distinguishes keys.
    const NAME_MAX: usize = 120;
    /// The maximum length of a key: the readable part, ":{", 22 characters and "}".
    const MAX: usize = Self::NAME_MAX + 25;

    fn new(name: [&str; 5], hash: u128) -> Self {
        let mut text = KeyText { bytes: [0; Self::MAX], length: 0 };
        text.push_readable(&name);
        text.push(b":{");
        let mut tag = [0; 22];
        // 16 bytes always encode to 22 characters, so this cannot fail.
        let _ = URL_SAFE_NO_PAD.encode_slice(hash.to_be_bytes(), &mut tag);
        text.push(&tag);
        text.push(b"}");
        Self { hash, text: text.as_str().into() }
    }

    /// Parses the text that [`as_str`](Self::as_str) returns, for stores that list records by the text of their keys.
    ///
    /// Returns `None` if no key has this text.
    #[must_use]
    pub fn from_text(text: &str) -> Option<Self> {
        let (name, tag) = text.strip_suffix('}')?.rsplit_once(":{")?;
        let mut hash = [0; 18];
        let length = URL_SAFE_NO_PAD.decode_slice(tag, &mut hash).ok()?;
        let key = Self::from_parts(name, u128::from_be_bytes(hash.get(..length)?.try_into().ok()?));
        (key.as_str() == text).then_some(key)
    }

    /// Creates a key from the readable part and the hash that a store has kept.
    #[must_use]
    pub fn from_parts(name: &str, hash: u128) -> Self {
        Self::new([name, "", "", "", ""], hash)
    }

    /// Returns the text of the key.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns the readable part: namespace, scene and scope.
    #[must_use]
    pub fn name(&self) -> &str {
        // Every key ends with ":{", 22 characters and "}".
        &self.text[..self.text.len() - 25]
    }

    /// Returns the hash: 128 bits of the SHA-256 of the whole identity, enough to distinguish records.
    #[must_use]
    pub fn hash(&self) -> u128 {
        self.hash
    }
}

/// A buffer for the text of a key. The buffer is on the stack, because every run writes a key.
struct KeyText {
    bytes: [u8; Key::MAX],
    length: usize,
}

impl KeyText {
    /// Writes the readable part and replaces braces, blanks and invisible characters, so that the braces of the hash
    /// are the only ones.
    fn push_readable(&mut self, name: &[&str]) {
        for part in name {
            if part.is_ascii() && self.length + part.len() <= Key::NAME_MAX {
                let start = self.length;
                self.push(part.as_bytes());
                self.bytes[start..self.length]
                    .iter_mut()
                    .filter(|byte| !is_readable(**byte))
                    .for_each(|byte| *byte = b'_');
                continue;
            }
            for char in part.chars() {
                if self.length + char.len_utf8() > Key::NAME_MAX {
                    return;
                }
                let keep = if char.is_ascii() { is_readable(char as u8) } else { char.is_alphanumeric() };
                self.push(if keep { char } else { '_' }.encode_utf8(&mut [0; 4]).as_bytes());
            }
        }
    }

    /// Appends bytes. Bytes that do not fit are dropped, so callers must check the length.
    fn push(&mut self, bytes: &[u8]) {
        if let Some(place) = self.bytes.get_mut(self.length..self.length + bytes.len()) {
            place.copy_from_slice(bytes);
            self.length += bytes.len();
        }
    }

    /// Returns the text. The bytes are valid UTF-8, because only whole characters are written.
    fn as_str(&self) -> &str {
        std::str::from_utf8(&self.bytes[..self.length]).unwrap_or_default()
    }
}

fn is_readable(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b':' | b'_' | b'-' | b'.' | b'<' | b'>' | b'/')
}

impl std::hash::Hash for Key {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        state.write_u128(self.hash);
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({})", self.text)
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_long_name_is_truncated_after_its_last_whole_character() {
        for (name, length) in [("a".repeat(120), 120), ("a".repeat(121), 120), ("é".repeat(61), 120)] {
            assert_eq!(Key::from_parts(&name, 1).name().len(), length);
        }
        assert_eq!(Key::from_parts(&format!("a{}", "é".repeat(60)), 1).name().len(), 119);
    }

    #[test]
    fn a_key_is_parsed_from_its_own_text_only() {
        let key = Identity::new(Scene::Named("rest".into()), "orders", "o-17").key("shop").unwrap();
        assert!(key.as_str().starts_with("shop:rest:orders:{"));
        assert_eq!((Key::from_text(key.as_str()), key.to_string()), (Some(key.clone()), key.as_str().to_owned()));
        assert_eq!(Key::from_text(&key.as_str().replace("orders", "or ders")), None);
        assert_eq!(Scene::Named("rest".into()).canonical(), Scene::Rest);
    }

    #[test]
    fn a_hash_map_spreads_keys_by_their_hash() {
        let hasher = std::hash::BuildHasherDefault::<std::hash::DefaultHasher>::default();
        let of = |hash| std::hash::BuildHasher::hash_one(&hasher, Key::from_parts("orders", hash));
        assert!(of(1) == of(1) && of(1) != of(2));
    }

    #[test]
    fn the_arrow_of_a_function_type_does_not_end_type_arguments() {
        fn scope<T>() -> &'static str {
            scope_of(&|| std::any::type_name::<T>())
        }
        assert!(scope::<fn(u8) -> Vec<u8>>().ends_with("::scope"), "{}", scope::<fn(u8) -> Vec<u8>>());
    }
}
