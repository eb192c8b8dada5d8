//! The boundaries of requests in the MySQL protocol. Replies are forwarded as they arrive, since a client waits for a
//! whole reply.

/// Returns whether a server's first bytes are those of the protocol: one packet, whose first byte is the protocol
/// version.
pub(super) fn greets(bytes: &[u8]) -> bool {
    matches!(bytes, [_, _, 0, 0, 10, ..])
}

/// Returns the length of the first packet if it is complete.
pub(super) fn request(bytes: &[u8]) -> Option<usize> {
    let [low, middle, high, _, ..] = bytes else { return None };
    let length = 4 + usize::from(*low) + (usize::from(*middle) << 8) + (usize::from(*high) << 16);
    (length <= bytes.len()).then_some(length)
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
    fn only_its_servers_greet_so() {
        assert!(greets(b"\x5b\0\0\0\x0a5.5.5-10.11") && !greets(b"\x5b\0\0\0"));
        assert!(!greets(b"+OK\r\n") && !greets(b"*1\r\n$4"));
    }
}
