//! The position of a call in a stream, and the keys of records that belong to another key's record.
use std::fmt;
use std::sync::OnceLock;

use sha2::{Digest, Sha256};

use crate::Key;

/// A number of a stream.
pub(crate) struct SequencePosition {
    /// Where its line lies.
    pub(super) table_key: Key,
    pub(super) number: u64,
    /// The line as this call left it when it was let in.
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

/// A key of the same name that no identity has, for `what` is kept beside the key's own record.
pub(crate) fn derived_key(key: &Key, purpose: &[u8]) -> Key {
    let mut hash = Sha256::new();
    hash.update(purpose);
    hash.update(key.hash().to_be_bytes());
    let mut prefix = [0; 16];
    prefix.copy_from_slice(&hash.finalize()[..16]);
    Key::from_parts(key.name(), u128::from_be_bytes(prefix))
}

/// Where the line of a stream lies: a place that no identity can name.
pub(crate) fn table_key(stream: &Key) -> Key {
    derived_key(stream, b"idempotent: the line of a stream")
}
