//! The position of a call in a stream, and keys derived from other keys.
use std::fmt;
use std::sync::OnceLock;

use sha2::{Digest, Sha256};

use crate::Key;

/// A number of a stream.
pub(crate) struct SequencePosition {
    /// The key of the stream's order table.
    pub(super) table: Key,
    pub(super) number: u64,
    /// The order table as this call wrote it when the call was admitted.
    pub(super) written: OnceLock<Box<[u8]>>,
}

impl SequencePosition {
    pub(crate) fn new(stream: &Key, number: u64) -> Self {
        Self { table: table_key(stream), number, written: OnceLock::new() }
    }
}

impl fmt::Display for SequencePosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "it is number {} of a stream of `{}`", self.number, self.table.name())
    }
}

/// Returns a key with the same name that no identity has, for a record that belongs to the record of `key`.
pub(crate) fn derived_key(key: &Key, purpose: &[u8]) -> Key {
    let mut hash = Sha256::new();
    hash.update(purpose);
    hash.update(key.hash().to_be_bytes());
    let mut short = [0; 16];
    short.copy_from_slice(&hash.finalize()[..16]);
    Key::from_parts(key.name(), u128::from_be_bytes(short))
}

/// Returns the key of a stream's order table.
pub(crate) fn table_key(stream: &Key) -> Key {
    derived_key(stream, b"idempotent: the line of a stream")
}
