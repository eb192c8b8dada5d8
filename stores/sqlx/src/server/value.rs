//! Values that statements bind.
use idempotent_core::{Key, OwnerToken};

/// The maximum size of all values of a batch statement, in bytes. A single larger request is a statement of its own.
const BYTES: usize = 1 << 20;
/// A value of a parameter.
#[derive(Clone, Debug)]
pub(crate) enum Value {
    Int(Option<i64>),
    Bytes(Option<Vec<u8>>),
}

impl Value {
    /// Returns the size of the value in bytes.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::Int(_) => size_of::<i64>(),
            Self::Bytes(bytes) => bytes.as_ref().map_or(0, Vec::len),
        }
    }
}

impl From<i64> for Value {
    fn from(number: i64) -> Self {
        Self::Int(Some(number))
    }
}

impl From<Option<i64>> for Value {
    fn from(number: Option<i64>) -> Self {
        Self::Int(number)
    }
}

impl From<Vec<u8>> for Value {
    fn from(bytes: Vec<u8>) -> Self {
        Self::Bytes(Some(bytes))
    }
}

impl From<Option<Vec<u8>>> for Value {
    fn from(bytes: Option<Vec<u8>>) -> Self {
        Self::Bytes(bytes)
    }
}

/// Text is bound as bytes, because it may contain characters that a database rejects in text.
impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Bytes(Some(text.as_bytes().to_vec()))
    }
}

impl From<Option<&str>> for Value {
    fn from(text: Option<&str>) -> Self {
        Self::Bytes(text.map(|text| text.as_bytes().to_vec()))
    }
}

pub(crate) fn id(key: &Key) -> Vec<u8> {
    key.hash().to_be_bytes().to_vec()
}

/// Returns the bytes as hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    let digits = b"0123456789abcdef";
    let letters =
        bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]).map(|half| char::from(digits[usize::from(half)]));
    letters.collect()
}

pub(crate) fn owner(token: OwnerToken) -> Vec<u8> {
    token.0.to_be_bytes().to_vec()
}

/// Splits requests into packets that the server accepts as one statement.
pub(crate) fn in_packets(asks: Vec<Vec<Value>>) -> Vec<Vec<Vec<Value>>> {
    let mut packets: Vec<Vec<Vec<Value>>> = vec![Vec::new()];
    let mut filled = 0;
    for ask in asks {
        let bytes: usize = ask.iter().map(Value::bytes).sum();
        if filled + bytes > BYTES && filled > 0 {
            packets.push(Vec::new());
            filled = 0;
        }
        filled += bytes;
        if let Some(packet) = packets.last_mut() {
            packet.push(ask);
        }
    }
    packets
}
