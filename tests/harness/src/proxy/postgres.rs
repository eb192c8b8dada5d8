//! The boundaries of requests and replies in the PostgreSQL protocol. A request, and the reply that a client waits for,
//! each consist of many messages.

/// Returns whether a client's first bytes are those of the protocol: its version, or a request such as one for TLS.
/// Other protocols also begin with a length.
pub(super) fn begins(bytes: &[u8]) -> bool {
    matches!(bytes, [0, _, _, _, 0, 3, 0, _, ..] | [0, 0, 0, _, 0x04, 0xd2, 0x16, _, ..])
}

/// Returns whether this is the only message without a type: the first one of a client. Its length never fills all four
/// bytes.
fn is_untyped(bytes: &[u8]) -> bool {
    bytes.first() == Some(&0)
}

/// Returns the length of the first request if it is complete: up to a message that requires an answer.
pub(super) fn request(bytes: &[u8]) -> Option<usize> {
    let mut at = 0;
    loop {
        let rest = bytes.get(at..)?;
        if is_untyped(rest) {
            return Some(at + size(rest)?).filter(|end| *end <= bytes.len());
        }
        at += 1 + size(rest.get(1..)?)?;
        if at > bytes.len() {
            return None;
        }
        // A query, a sync, a password, or the end.
        if b"QSpX".contains(rest.first()?) {
            return Some(at);
        }
    }
}

/// Returns the length of the first reply if it is complete: up to the point where the server is ready, or asks for more
/// data.
pub(super) fn reply(bytes: &[u8], first: bool) -> Option<usize> {
    // The answer to a request for TLS is one letter.
    if first && bytes.len() == 1 {
        return Some(1);
    }
    let mut at = 0;
    loop {
        let rest = bytes.get(at..)?;
        at += 1 + size(rest.get(1..)?)?;
        if at > bytes.len() {
            return None;
        }
        match rest.first()? {
            b'Z' => return Some(at),
            b'R' if rest.get(5..9)? != [0; 4] => return Some(at),
            _ => {}
        }
    }
}

/// Returns the size of a message without its type.
fn size(bytes: &[u8]) -> Option<usize> {
    let length = bytes.get(..4)?.iter().fold(0, |sum: usize, byte| sum << 8 | usize::from(*byte));
    // The size includes its own four bytes.
    Some(length.max(4))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_client_of_postgresql_begins_with_its_version_or_a_question() {
        let tls = b"\0\0\0\x08\x04\xd2\x16\x2f";
        let three = b"\0\0\0\x29\0\x03\0\0user\0me\0\0";
        assert!(begins(tls) && begins(three));
        let rocketmq = b"\0\0\x01\x2c\0\0\x01\x14{\"code\":17";
        assert!(!begins(rocketmq) && !begins(b"\0\0\0") && !begins(b"*1\r\n$4\r\nping\r\n"));
    }

    #[test]
    fn a_request_ends_where_it_asks_for_an_answer_and_a_reply_where_the_server_is_ready() {
        let startup = b"\0\0\0\x08\x04\xd2\x16\x2f";
        let query = b"Q\0\0\0\x0bCOMMIT\0";
        let prepared = b"P\0\0\0\x05xB\0\0\0\x04S\0\0\0\x04";
        for whole in [&startup[..], query, prepared] {
            for end in 0..whole.len() {
                assert_eq!(request(&whole[..end]), None, "{whole:?} cut at {end}");
            }
            assert_eq!(request(&[whole, query].concat()), Some(whole.len()));
        }
        let ready = b"C\0\0\0\x0bCOMMIT\0Z\0\0\0\x05I";
        for end in 0..ready.len() {
            assert_eq!(reply(&ready[..end], false), None, "cut at {end}");
        }
        assert_eq!(reply(&[&ready[..], ready].concat(), false), Some(ready.len()));
        assert_eq!((reply(b"N", true), reply(b"N", false)), (Some(1), None));
        let asks = b"R\0\0\0\x08\0\0\0\x05";
        assert_eq!(reply(asks, true), Some(asks.len()));
    }
}
