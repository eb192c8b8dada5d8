//! Fingerprints of payloads, which are stable across builds and releases.
use serde::Serialize;
use sha2::{Digest, Sha256};

use crate::KeyError;
use crate::canonical::canonical;

/// A fingerprint of a payload: 128 bits of a digest, and its algorithm (1: SHA-256).
///
/// The hasher of the standard library changes between releases, so it cannot be used here.
#[derive(Clone, Copy, Debug, Eq, Hash)]
#[allow(clippy::derived_hash_with_manual_eq, reason = "equal by the same fields, only not as fast as may be")]
pub struct Fingerprint {
    algorithm: u8,
    digest: [u8; 16],
}

/// Compares in constant time, so that response times do not reveal how much of a guessed payload is right.
impl PartialEq for Fingerprint {
    fn eq(&self, other: &Self) -> bool {
        let digests = u128::from_ne_bytes(self.digest) ^ u128::from_ne_bytes(other.digest);
        digests | u128::from(self.algorithm ^ other.algorithm) == 0
    }
}

impl Fingerprint {
    /// The length of the stored form in bytes.
    pub const LEN: usize = 17;
    const SHA256: u8 = 1;

    /// Returns the fingerprint of the bytes. Buffer streamed data first, or use a [`Fingerprinter`].
    #[must_use]
    pub fn of_bytes(bytes: impl AsRef<[u8]>) -> Self {
        Self::by_sha256(&Sha256::digest(bytes))
    }

    fn by_sha256(whole: &[u8]) -> Self {
        let mut digest = [0; 16];
        digest.copy_from_slice(&whole[..16]);
        Self { algorithm: Self::SHA256, digest }
    }

    /// Returns the fingerprint of a value's canonical form: its compact JSON with sorted names.
    ///
    /// The order of a map, of a struct's fields, of a `HashSet` and of a `BinaryHeap` does not matter. `None`, `()` and
    /// the infinities differ from each other.
    ///
    /// # Errors
    /// Returns [`KeyError::Fingerprint`] if the value contains a NaN, or if its own `Serialize` fails.
    pub fn of(value: &(impl Serialize + ?Sized)) -> Result<Self, KeyError> {
        let bytes = canonical(value).map_err(|error| KeyError::Fingerprint { error: error.to_string() })?;
        Ok(Self::of_bytes(bytes))
    }

    /// Returns the stored form: the algorithm, then the digest.
    #[must_use]
    pub fn to_bytes(self) -> [u8; Self::LEN] {
        let mut bytes = [self.algorithm; Self::LEN];
        bytes[1..].copy_from_slice(&self.digest);
        bytes
    }

    /// Decodes the stored form. A fingerprint with an unknown algorithm differs from every other fingerprint.
    #[must_use]
    pub fn from_bytes(bytes: [u8; Self::LEN]) -> Self {
        let [algorithm, digest @ ..] = bytes;
        Self { algorithm, digest }
    }
}

/// Computes the fingerprint of data that arrives in pieces, such as a request body. The boundaries of pieces do not
/// matter.
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
    /// Creates an empty fingerprinter.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends a piece.
    pub fn push(&mut self, bytes: impl AsRef<[u8]>) {
        self.0.update(bytes);
    }

    /// Appends a separate part with its length, so that adjacent parts cannot be confused.
    pub fn part(&mut self, bytes: impl AsRef<[u8]>) {
        let bytes = bytes.as_ref();
        self.0.update((bytes.len() as u64).to_le_bytes());
        self.0.update(bytes);
    }

    /// Returns the fingerprint of all pieces.
    #[must_use]
    pub fn finish(self) -> Fingerprint {
        Fingerprint::by_sha256(&self.0.finalize())
    }
}

/// A value for `fingerprint = …`: any `Serialize` type, or a [`Fingerprint`].
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be fingerprinted",
    label = "this fingerprint expression",
    note = "derive Serialize, or pass `Fingerprint::of_bytes(&bytes)`; buffer a streaming body first"
)]
pub trait Fingerprinted {
    /// Returns the fingerprint of this value.
    ///
    /// # Errors
    /// Returns [`KeyError::Fingerprint`] if the value has no fingerprint.
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
    message = "`{Self}` cannot distinguish two calls",
    label = "`by = param` without a `key` uses every argument, and this one has no fingerprint",
    note = "list the arguments of the key, `key = (a, b)`, or derive Serialize; the argument of `with` is not used"
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

/// Combines the fingerprints of all arguments.
#[doc(hidden)]
pub fn arguments<const N: usize>(all: [Result<Fingerprint, KeyError>; N]) -> Result<Fingerprint, KeyError> {
    let mut whole = Fingerprinter::new();
    for one in all {
        whole.push(one?.to_bytes());
    }
    Ok(whole.finish())
}

/// Returns the key of a call that is identified by its arguments.
///
/// If the arguments have no fingerprint, the executor refuses the call by that error, so the zeros never reach a store.
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
    fn the_order_of_names_does_not_matter_and_the_payload_does() {
        let of = |text: &str| Fingerprint::of(&serde_json::from_str::<serde_json::Value>(text).unwrap()).unwrap();
        assert_eq!(of(r#"{"a":1,"b":2}"#), of(r#"{"b":2,"a":1}"#));
        assert_ne!(of(r#"{"a":1}"#), of(r#"{"a":2}"#));
    }

    #[test]
    fn fingerprints_differ_if_digest_and_algorithm_differ_by_the_same_bits() {
        let of = |algorithm: u8, digest: u128| Fingerprint { algorithm, digest: digest.to_ne_bytes() };
        assert_ne!(of(1, 0), of(2, 3));
        assert_ne!(of(1, 0), of(2, 0));
        assert_ne!(of(1, 0), of(1, 3));
        assert_eq!(of(2, 3), of(2, 3));
    }

    #[test]
    fn a_part_is_preceded_by_its_length() {
        let of = |parts: &[&str]| {
            let mut pieces = Fingerprinter::new();
            parts.iter().for_each(|part| pieces.part(part));
            pieces.finish()
        };
        assert_eq!(of(&["ab"]), Fingerprint::of_bytes(b"\x02\0\0\0\0\0\0\0ab"));
        assert_ne!(of(&["a", "b"]), of(&["ab", ""]));
    }
}
