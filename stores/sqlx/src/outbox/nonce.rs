//! The nonce of a message: a secret between an outbox and the consumers of its messages.
//!
//! Any client that may publish to a queue can choose a message's id. A message sent by the outbox also carries the
//! nonce of its row, and only such a message changes the row.
use std::fmt::Write as _;

use idempotent_core::{Entropy, OsEntropy};
use idempotent_mq::LoggedDelivery;

use super::{OutboxError, OutboxErrorKind};

/// The random bytes of one message.
pub(super) type Nonce = [u8; 16];

/// Returns a new nonce.
pub(super) fn nonce() -> Result<Nonce, OutboxError> {
    let bits = OsEntropy.bits();
    bits.map(u128::to_be_bytes).map_err(|error| OutboxError::new(OutboxErrorKind::Invalid, error.to_string()))
}

/// Returns the value of the header: 32 hexadecimal digits.
pub(super) fn to_header(nonce: &[u8]) -> String {
    nonce.iter().fold(String::with_capacity(32), |mut text, byte| {
        // Writing to a string does not fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Reads the value of the header; `None` if it is not one that [`to_header`] writes.
fn from_header(value: &[u8]) -> Option<Nonce> {
    let text = std::str::from_utf8(value).ok()?;
    let digits = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte));
    Some(u128::from_str_radix(digits.then_some(text)?, 16).ok()?.to_be_bytes())
}

/// Returns the nonce that a delivery carries.
pub(super) fn nonce_of(receipt: &LoggedDelivery) -> Option<Nonce> {
    from_header(receipt.nonce.as_deref()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_written_header_is_read() {
        let nonce: Nonce = std::array::from_fn(|at| at as u8 * 17);
        let header = to_header(&nonce);
        assert_eq!(header, "00112233445566778899aabbccddeeff");
        assert_eq!(from_header(header.as_bytes()), Some(nonce));
        for odd in
            ["", "0", "+0112233445566778899aabbccddeeff", "00112233445566778899AABBCCDDEEFF", &format!("{header}0")]
        {
            assert_eq!(from_header(odd.as_bytes()), None, "{odd}");
        }
        assert_eq!(from_header(&[0xff; 32]), None);
    }
}
