//! The position of a call in a stream, and the keys of records that belong to another key's record.
use std::fmt;
use std::sync::OnceLock;

use sha2::{Digest, Sha256};

use crate::Key;

/// The position of a call in a stream.
#[derive(Clone)]
pub(crate) struct SequencePosition {
    /// The key of the stream's order table.
    pub(super) table_key: Key,
    pub(super) number: u64,
    /// The encoded table after the admission of this call.
    pub(super) admitted_table: OnceLock<Box<[u8]>>,
}

impl SequencePosition {
    pub(crate) fn new(stream: &Key, number: u64) -> Self {
        Self { table_key: table_key(stream), number, admitted_table: OnceLock::new() }
    }
}

impl fmt::Display for SequencePosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "it is number {} of a stream of `{}`", self.number, self.table_key.name())
    }
}

/// Derives the key of a record that accompanies the record of `key`. The derived key has the same name, and no identity
/// produces it.
pub(crate) fn derived_key(key: &Key, purpose: &[u8]) -> Key {
    let mut hash = Sha256::new();
    hash.update(purpose);
    hash.update(key.hash().to_be_bytes());
    let mut prefix = [0; 16];
    prefix.copy_from_slice(&hash.finalize()[..16]);
    Key::from_parts(key.name(), u128::from_be_bytes(prefix))
}

/// Returns the key of a stream's order table, which no identity produces.
pub(crate) fn table_key(stream: &Key) -> Key {
    derived_key(stream, b"idempotent: the line of a stream")
}
