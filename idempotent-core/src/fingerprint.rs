//! Tells two payloads under one key apart, the same way in every build and every year.
use serde::Serialize;
use sha2::{Digest, Sha256};

use crate::KeyError;
use crate::canonical::canonical;

/// 128 bits of a digest, and the algorithm that made it (1: SHA-256). std's hasher changes between
/// releases, so it has no place here.
#[derive(Clone, Copy, Debug, Eq, Hash)]
#[allow(clippy::derived_hash_with_manual_eq, reason = "equal by the same fields, only not as fast as may be")]
pub struct Fingerprint {
    algorithm: u8,
    digest: [u8; 16],
}

/// Takes as long for the first byte that differs as for the last: how far a guess at a payload got is not to be timed.
impl PartialEq for Fingerprint {
    fn eq(&self, other: &Self) -> bool {
        let digests = u128::from_ne_bytes(self.digest) ^ u128::from_ne_bytes(other.digest);
        digests | u128::from(self.algorithm ^ other.algorithm) == 0
    }
}

impl Fingerprint {
    /// Bytes of the stored form.
    pub const LEN: usize = 17;
    const SHA256: u8 = 1;

    /// Of bytes as they are. What is streamed must be buffered first.
    #[must_use]
    pub fn of_bytes(bytes: impl AsRef<[u8]>) -> Self {
        Self::by_sha256(&Sha256::digest(bytes))
    }

    fn by_sha256(whole: &[u8]) -> Self {
        let mut digest = [0; 16];
        digest.copy_from_slice(&whole[..16]);
        Self { algorithm: Self::SHA256, digest }
    }

    /// Returns the fingerprint of a value's canonical form: its compact JSON with sorted names, so the order of a map or of a
    /// struct's fields does not count. The order of a `HashSet` or a `BinaryHeap` does not count either. `None`, `()` and the
    /// infinities differ from each other.
    ///
    /// # Errors
    /// [`KeyError::Fingerprint`] if the value has no such form: it holds a NaN, or its own `Serialize` fails.
    pub fn of(value: &(impl Serialize + ?Sized)) -> Result<Self, KeyError> {
        let bytes = canonical(value).map_err(|error| KeyError::Fingerprint { error: error.to_string() })?;
        Ok(Self::of_bytes(bytes))
    }

    /// The stored form: the algorithm, then the digest.
    #[must_use]
    pub fn to_bytes(self) -> [u8; Self::LEN] {
        let mut bytes = [self.algorithm; Self::LEN];
        bytes[1..].copy_from_slice(&self.digest);
        bytes
    }

    /// Reads the stored form. An algorithm this version does not know differs from every other fingerprint.
    #[must_use]
    pub fn from_bytes(bytes: [u8; Self::LEN]) -> Self {
        let [algorithm, digest @ ..] = bytes;
        Self { algorithm, digest }
    }
}

/// Takes bytes as they come, for a body that is read in pieces: how they were cut does not count.
///
/// ```
/// use idempotent_core::{Fingerprint, Fingerprinter};
///
/// let mut pieces = Fingerprinter::new();
/// pieces.push("ab");
/// pieces.push("c");
/// assert_eq!(pieces.finish(), Fingerprint::of_bytes("abc"));
/// ```
#[derive(Clone, Debug, Default)]
pub struct Fingerprinter(Sha256);

impl Fingerprinter {
    /// Of nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The next piece.
    pub fn push(&mut self, bytes: impl AsRef<[u8]>) {
        self.0.update(bytes);
    }

    /// A part of its own: its length, then its bytes, so that it cannot run over into the next.
    pub fn part(&mut self, bytes: impl AsRef<[u8]>) {
        let bytes = bytes.as_ref();
        self.0.update((bytes.len() as u64).to_le_bytes());
        self.0.update(bytes);
    }

    /// The fingerprint of all of it.
    #[must_use]
    pub fn finish(self) -> Fingerprint {
        Fingerprint::by_sha256(&self.0.finalize())
    }
}

/// What `fingerprint = …` takes: anything `Serialize`, or a [`Fingerprint`] made by hand.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be fingerprinted",
    label = "this fingerprint expression",
    note = "derive Serialize, or give `Fingerprint::of_bytes(&bytes)`; a streaming body must be buffered first"
)]
pub trait Fingerprinted {
    /// # Errors
    /// [`KeyError::Fingerprint`] if the value has no fingerprint.
    fn fingerprint(&self) -> Result<Fingerprint, KeyError>;
}

#[diagnostic::do_not_recommend]
impl<T: Serialize + ?Sized> Fingerprinted for T {
    fn fingerprint(&self) -> Result<Fingerprint, KeyError> {
        Fingerprint::of(self)
    }
}

impl Fingerprinted for Fingerprint {
    fn fingerprint(&self) -> Result<Fingerprint, KeyError> {
        Ok(*self)
    }
}

#[doc(hidden)]
pub fn fingerprint(value: &(impl Fingerprinted + ?Sized)) -> Result<Fingerprint, KeyError> {
    value.fingerprint()
}

/// An argument of a handler whose arguments are its key.
#[doc(hidden)]
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot tell two calls apart",
    label = "`by = param` without a `key` takes in every argument, and this one has no fingerprint",
    note = "name the arguments that count, `key = (a, b)`, or derive Serialize; what `with` names does not count"
)]
pub trait Argument {
    fn said(&self) -> Result<Fingerprint, KeyError>;
}

#[diagnostic::do_not_recommend]
impl<T: Serialize + ?Sized> Argument for T {
    fn said(&self) -> Result<Fingerprint, KeyError> {
        Fingerprint::of(self)
    }
}

#[doc(hidden)]
pub fn argument(value: &(impl Argument + ?Sized)) -> Result<Fingerprint, KeyError> {
    value.said()
}

/// The fingerprint of all arguments, each by its own.
#[doc(hidden)]
pub fn arguments<const N: usize>(all: [Result<Fingerprint, KeyError>; N]) -> Result<Fingerprint, KeyError> {
    let mut whole = Fingerprinter::new();
    for one in all {
        whole.push(one?.to_bytes());
    }
    Ok(whole.finish())
}

/// The key of a call that is told apart by what it says. Where that has no fingerprint the call is refused by it, so
/// that what stands here instead never gets to a store.
#[doc(hidden)]
#[must_use]
pub fn said(fingerprint: &Result<Fingerprint, KeyError>) -> [u8; 17] {
    fingerprint.as_ref().map_or([0; 17], |fingerprint| fingerprint.to_bytes())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_fingerprint_of_a_known_value_never_changes() {
        let value = serde_json::json!({"b": [1, {"z": false, "a": "é"}], "a": true});
        let form = Fingerprint::of_bytes(r#"{"a":true,"b":[1,{"a":"é","z":false}]}"#);
        assert_eq!(Fingerprint::of(&value).unwrap(), form);
        let stored = Fingerprint::of_bytes(b"abc").to_bytes();
        assert_eq!(stored[..5], [1, 0xba, 0x78, 0x16, 0xbf]);
        assert_eq!(Fingerprint::from_bytes(stored), Fingerprint::of_bytes("abc"));
    }

    #[test]
    fn the_order_of_names_does_not_count_and_the_payload_does() {
        let of = |text: &str| Fingerprint::of(&serde_json::from_str::<serde_json::Value>(text).unwrap()).unwrap();
        assert_eq!(of(r#"{"a":1,"b":2}"#), of(r#"{"b":2,"a":1}"#));
        assert_ne!(of(r#"{"a":1}"#), of(r#"{"a":2}"#));
    }
}
