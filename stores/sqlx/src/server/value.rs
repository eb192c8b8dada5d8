//! Values that statements bind.
use idempotent_core::{Key, OwnerToken};

pub(crate) use crate::sql_database::SqlValue as Value;

/// The maximum size of all values of a batch statement, in bytes. A single larger request is a statement of its own.
const BYTES: usize = 1 << 20;

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
        let bytes: usize = ask.iter().map(Value::size).sum();
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
