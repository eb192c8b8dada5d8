//! The boundaries of requests and replies in the MySQL protocol. A reply without a fault is forwarded as it arrives, since a
//! client waits for a whole reply.

/// The bit of a packet's status that announces the reply to another statement of the same request.
const MORE: u16 = 8;

/// Returns whether a server's first bytes are those of the protocol: one packet, whose first byte is the protocol
/// version.
pub(super) fn greets(bytes: &[u8]) -> bool {
    matches!(bytes, [_, _, 0, 0, 10, ..])
}

/// Clears the bit of a greeting that offers TLS, so that a client uses none if it may. The proxy could not find the requests
/// of an encrypted connection.
pub(super) fn offer_no_tls(greeting: &mut [u8]) {
    // The protocol version, the version of the server and its end, a thread id, eight bytes of a nonce, and a zero.
    let version = greeting.iter().skip(5).position(|byte| *byte == 0);
    if let Some(capabilities) = version.and_then(|end| greeting.get_mut(5 + end + 1 + 4 + 8 + 1 + 1)) {
        *capabilities &= !TLS;
    }
}

/// The bit in the second byte of the capabilities (`CLIENT_SSL`).
const TLS: u8 = 8;

/// Returns the length of the first packet if it is complete.
pub(super) fn request(bytes: &[u8]) -> Option<usize> {
    let [low, middle, high, _, ..] = bytes else { return None };
    let length = 4 + usize::from(*low) + (usize::from(*middle) << 8) + (usize::from(*high) << 16);
    (length <= bytes.len()).then_some(length)
}

/// Returns the length of the bytes if they are a whole reply, with the results of all statements of its request.
pub(super) fn reply(bytes: &[u8]) -> Option<usize> {
    let (mut rest, mut first, mut last): (&[u8], Option<&[u8]>, &[u8]) = (bytes, None, &[]);
    while let Some(length) = request(rest) {
        (last, rest) = (&rest[4..length], &rest[length..]);
        first = first.or(Some(last));
    }
    let is_whole = match last {
        // The end of a statement, or of its rows.
        [0 | 0xfe, state @ ..] if state.len() < 64 => {
            let status = number(state).and_then(number).and_then(|status| status.first_chunk());
            status.is_none_or(|status| u16::from_le_bytes(*status) & MORE == 0)
        }
        // A number of columns, or the definition of one: rows follow, unless the statement was only prepared.
        [_] | [3, b'd', b'e', b'f', ..] => matches!(first, Some([0, prepared @ ..]) if prepared.len() == 11),
        _ => true,
    };
    (rest.is_empty() && is_whole && !bytes.is_empty()).then_some(bytes.len())
}

/// Skips a number of variable length.
fn number(bytes: &[u8]) -> Option<&[u8]> {
    let length = match bytes.first()? {
        0xfc => 3,
        0xfd => 4,
        0xfe => 9,
        _ => 1,
    };
    bytes.get(length..)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_ends_where_its_length_says() {
        let ping = b"\x01\0\0\0\x0e";
        for end in 0..ping.len() {
            assert_eq!(request(&ping[..end]), None, "cut at {end}");
        }
        assert_eq!(request(&[&ping[..], ping].concat()), Some(ping.len()));
        let large = [&[0, 1, 0, 0][..], &[b'x'; 300]].concat();
        assert_eq!((request(&large[..259]), request(&large)), (None, Some(260)));
    }

    #[test]
    fn a_reply_ends_with_that_of_its_last_statement() {
        // One row changed, as the first of two statements; then COMMIT.
        let (first, last) = (&b"\x07\0\0\x01\0\x01\0\x0b\0\0\0"[..], &b"\x07\0\0\x02\0\0\0\x02\0\0\0"[..]);
        assert_eq!(reply(first), None);
        let both = [first, last].concat();
        for end in 0..both.len() {
            assert_eq!(reply(&both[..end]), None, "cut at {end}");
        }
        assert_eq!(reply(&both), Some(both.len()));
        assert_eq!(reply(b"\x03\0\0\x01\xff\x19\x05"), Some(7), "an error");
        // One column, its definition, no rows, and their end.
        let rows = |status: u8| {
            [&b"\x01\0\0\x01\x01\x05\0\0\x02\x03defx\x07\0\0\x03\xfe\0\0"[..], &[status, 0, 0, 0]].concat()
        };
        assert_eq!((reply(&rows(10)), reply(&rows(2))), (None, Some(25)), "the end of rows");
        assert_eq!((reply(&rows(2)[..5]), reply(&rows(2)[..14])), (None, None), "rows are missing");
        let prepared = [&b"\x0c\0\0\x01\0\x01\0\0\0\x01\0\0\0\0\0\0"[..], &rows(2)[5..14]].concat();
        assert_eq!(reply(&prepared), Some(prepared.len()), "a statement that was prepared");
    }

    #[test]
    fn a_greeting_offers_no_tls() {
        let greeting = |second| [&b"\x2d\0\0\0\x0a9.7\0idid12345678\0\xff"[..], &[second], b"\xff\x02\0"].concat();
        let mut offered = greeting(0xff);
        offer_no_tls(&mut offered);
        assert_eq!(offered, greeting(0xf7));
        offer_no_tls(&mut offered[..9]);
    }

    #[test]
    fn only_its_servers_greet_so() {
        assert!(greets(b"\x5b\0\0\0\x0a5.5.5-10.11") && !greets(b"\x5b\0\0\0"));
        assert!(!greets(b"+OK\r\n") && !greets(b"*1\r\n$4"));
    }
}
