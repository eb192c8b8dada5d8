//! What makes two deliveries "the same".
mod part;

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;
use sha2::{Digest, Sha256};

pub use self::part::{KeyExtractor, KeyPart, Parts, key_hash};
use crate::KeyError;

/// Where a call comes from. It picks the defaults and is part of the identity.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum Scene {
    /// A message handler.
    Mq,
    /// A request handler.
    Rest,
    /// One of your own, with the defaults of `rest`.
    Named(Cow<'static, str>),
}

impl Scene {
    /// A name that is one of the built-in scenes' is that scene: one record, one policy.
    pub(crate) fn canonical(self) -> Self {
        match &self {
            Self::Named(name) if name == "mq" => Self::Mq,
            Self::Named(name) if name == "rest" => Self::Rest,
            _ => self,
        }
    }

    /// Its name in keys, records and logs.
    #[must_use]
    pub fn as_str(&self) -> &str {
        match self {
            Self::Mq => "mq",
            Self::Rest => "rest",
            Self::Named(name) => name,
        }
    }
}

/// (namespace, tenant, scene, scope, parts): the five things a [`Key`] is the hash of. Each is length-prefixed,
/// so none can run over into the next, and none is ever part of a pattern, a script or a statement.
#[derive(Clone, Debug)]
pub struct Identity {
    namespace: Option<Cow<'static, str>>,
    tenant: Option<Parts>,
    pub(crate) scene: Scene,
    pub(crate) scope: Cow<'static, str>,
    parts: Parts,
    /// Tokens are keys of a kind of their own: what a client sends as one can name no other record.
    token: bool,
    what: Cow<'static, str>,
}

impl Identity {
    /// `scope` is the handler or consumer group: two of them see the same message twice, once each.
    pub fn new(scene: Scene, scope: impl Into<Cow<'static, str>>, parts: &(impl KeyPart + ?Sized)) -> Self {
        let mut all = Parts::default();
        parts.feed(&mut all);
        Self {
            namespace: None,
            tenant: None,
            scene: scene.canonical(),
            scope: scope.into(),
            parts: all,
            token: false,
            what: Cow::Borrowed("key"),
        }
    }

    /// Sets the namespace (the attribute's `prefix`); the executor's stands otherwise.
    #[must_use]
    pub fn prefix(mut self, namespace: impl Into<Cow<'static, str>>) -> Self {
        self.namespace = Some(namespace.into());
        self
    }

    /// Sets the tenant: the same key of another tenant is another key. An empty or missing one is an error, as for
    /// a key.
    #[must_use]
    pub fn tenant(mut self, tenant: &(impl KeyPart + ?Sized)) -> Self {
        let mut parts = Parts::default();
        tenant.feed(&mut parts);
        self.tenant = Some(parts);
        self
    }

    /// Another call of the same handler.
    pub(crate) fn sibling(&self, parts: Parts) -> Self {
        Self { parts, ..self.clone() }
    }

    /// The identity of a token that was issued, not of a key that a caller made.
    pub(crate) fn token(mut self) -> Self {
        self.token = true;
        self
    }

    /// Says what the key was made of, for errors.
    #[must_use]
    pub fn described(mut self, what: impl Into<Cow<'static, str>>) -> Self {
        self.what = what.into();
        self
    }

    /// The storage key, in the executor's `namespace` unless the identity has its own.
    ///
    /// # Errors
    /// [`KeyError`] if a part is empty or the parts are too long together.
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
            // A missing tenant is no tenant that all who have none share.
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

    /// What operators may see of the key.
    pub(crate) fn display(&self, policy: DisplayKey) -> Option<Arc<str>> {
        match policy {
            DisplayKey::Hash => None,
            DisplayKey::Full => Some(self.parts.readable().into()),
            DisplayKey::Mask(mask) => Some(mask(&self.parts.readable()).into()),
        }
    }
}

/// The function that a closure stands in, as the compiler writes its path, without the function's own type
/// arguments: the same key as `&str` and as `String` is one key.
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
            // The arrow of a function's type.
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

/// What operators see of a key, in records that are consuming, failed or dead. Logs, spans and metrics show
/// the hash in any case.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum DisplayKey {
    /// Nothing but the hash, which every record has. The default: keys may be card numbers or addresses.
    #[default]
    Hash,
    /// The key itself, control and other invisible characters escaped.
    Full,
    /// What this function makes of it.
    #[serde(skip)]
    Mask(fn(&str) -> String),
}

impl PartialEq for DisplayKey {
    /// Two masks are the same if they are the same function; a function inlined twice may differ from itself.
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Hash, Self::Hash) | (Self::Full, Self::Full) => true,
            (Self::Mask(a), Self::Mask(b)) => std::ptr::fn_addr_eq(*a, *b),
            _ => false,
        }
    }
}

/// Where a record lies in the store: readable up to the scope, then a hash of the whole identity in braces, so
/// that a cluster keeps everything of one key in one slot.
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
    /// The readable part is cut off after this many bytes; the hash tells keys apart.
    const NAME_MAX: usize = 120;
    /// With ":{", 22 characters and "}".
    const MAX: usize = Self::NAME_MAX + 25;

    fn new(name: [&str; 5], hash: u128) -> Self {
        let mut text = Text { bytes: [0; Self::MAX], length: 0 };
        text.readable(&name);
        text.push(b":{");
        let mut tag = [0; 22];
        // 16 bytes make 22 characters: it cannot fail.
        let _ = URL_SAFE_NO_PAD.encode_slice(hash.to_be_bytes(), &mut tag);
        text.push(&tag);
        text.push(b"}");
        Self { hash, text: text.as_str().into() }
    }

    /// Reads back what [`as_str`](Self::as_str) gave: for stores that list their records by the key's text.
    /// `None` if no key has this text.
    #[must_use]
    pub fn from_text(text: &str) -> Option<Self> {
        let (name, tag) = text.strip_suffix('}')?.rsplit_once(":{")?;
        let mut hash = [0; 18];
        let length = URL_SAFE_NO_PAD.decode_slice(tag, &mut hash).ok()?;
        let key = Self::from_parts(name, u128::from_be_bytes(hash.get(..length)?.try_into().ok()?));
        (key.as_str() == text).then_some(key)
    }

    /// A key read back from a store: its readable part and its hash.
    #[must_use]
    pub fn from_parts(name: &str, hash: u128) -> Self {
        Self::new([name, "", "", "", ""], hash)
    }

    /// The storage key.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The readable part: namespace, scene and scope.
    #[must_use]
    pub fn name(&self) -> &str {
        // ":{" + 22 characters + "}" end every key.
        &self.text[..self.text.len() - 25]
    }

    /// 128 bits of SHA-256 over the whole identity; tells records apart on its own.
    #[must_use]
    pub fn hash(&self) -> u128 {
        self.hash
    }
}

/// A storage key being written, on the stack: every run writes one.
struct Text {
    bytes: [u8; Key::MAX],
    length: usize,
}

impl Text {
    /// Keeps braces, blanks and what is not visible out of the readable part: the hash tag stays the hash's.
    fn readable(&mut self, name: &[&str]) {
        for part in name {
            if part.is_ascii() && self.length + part.len() <= Key::NAME_MAX {
                let start = self.length;
                self.push(part.as_bytes());
                self.bytes[start..self.length].iter_mut().filter(|byte| !is_kept(**byte)).for_each(|byte| *byte = b'_');
                continue;
            }
            for char in part.chars() {
                if self.length + char.len_utf8() > Key::NAME_MAX {
                    return;
                }
                let keep = if char.is_ascii() { is_kept(char as u8) } else { char.is_alphanumeric() };
                self.push(if keep { char } else { '_' }.encode_utf8(&mut [0; 4]).as_bytes());
            }
        }
    }

    /// What does not fit is left out: callers see to it that all does.
    fn push(&mut self, bytes: &[u8]) {
        if let Some(place) = self.bytes.get_mut(self.length..self.length + bytes.len()) {
            place.copy_from_slice(bytes);
            self.length += bytes.len();
        }
    }

    /// Made of characters only.
    fn as_str(&self) -> &str {
        std::str::from_utf8(&self.bytes[..self.length]).unwrap_or_default()
    }
}

fn is_kept(byte: u8) -> bool {
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
