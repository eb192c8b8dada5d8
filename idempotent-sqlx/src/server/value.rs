//! Values that statements bind.
use idempotent_core::{Key, OwnerToken};

/// Values of a statement for many are no more bytes together, where one alone is not.
const BYTES: usize = 1 << 20;
/// What goes into a place.
#[derive(Clone, Debug)]
pub(crate) enum Value {
    Int(Option<i64>),
    Bytes(Option<Vec<u8>>),
}

impl Value {
    /// How many there are of them.
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

/// A text of somebody's, which may hold characters that a database's text cannot.
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

/// Two letters for each.
pub(crate) fn hex(bytes: &[u8]) -> String {
    let digits = b"0123456789abcdef";
    let letters =
        bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]).map(|half| char::from(digits[usize::from(half)]));
    letters.collect()
}

pub(crate) fn owner(token: OwnerToken) -> Vec<u8> {
    token.0.to_be_bytes().to_vec()
}

/// So that a statement does not become larger than the server takes.
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
