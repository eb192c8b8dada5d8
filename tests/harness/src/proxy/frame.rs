//! The boundaries of requests and replies in the Redis protocol.

/// Requests whose answers are messages, in any number.
const SUBSCRIBING: [&[u8]; 6] =
    [b"SUBSCRIBE", b"UNSUBSCRIBE", b"PSUBSCRIBE", b"PUNSUBSCRIBE", b"SSUBSCRIBE", b"SUNSUBSCRIBE"];

/// Requests that a client sends before its first real request, or to check the connection.
const OPENING: [&[u8]; 9] =
    [b"HELLO", b"AUTH", b"SELECT", b"CLIENT", b"PING", b"INFO", b"READONLY", b"CLUSTER", b"COMMAND"];

/// Returns the length of the first frame if it is complete. Data that is not RESP, such as TLS, is one frame.
pub(super) fn length(bytes: &[u8]) -> Option<usize> {
    let first = *bytes.first()?;
    if !b"+-:_,#($!=*~>%|".contains(&first) {
        return Some(bytes.len());
    }
    let line = bytes.windows(2).position(|pair| pair == b"\r\n")? + 2;
    let count = || std::str::from_utf8(&bytes[1..line - 2]).ok()?.parse::<usize>().ok();
    let parts = match first {
        b'$' | b'!' | b'=' => {
            // No number, or -1: the frame has no content.
            let end = count().map_or(line, |length| line + length + 2);
            return (end <= bytes.len()).then_some(end);
        }
        b'*' | b'~' | b'>' => count().unwrap_or(0),
        b'%' => 2 * count().unwrap_or(0),
        // Attributes of the following value.
        b'|' => 2 * count().unwrap_or(0) + 1,
        _ => 0,
    };
    (0..parts).try_fold(line, |end, _| Some(end + length(&bytes[end..])?))
}

/// Returns whether the answers to this request do not come one for one.
pub(super) fn subscribes(request: &[u8]) -> bool {
    is_one_of(request, &SUBSCRIBING)
}

/// Returns whether a client sends this request by itself.
pub(super) fn opens(request: &[u8]) -> bool {
    is_one_of(request, &OPENING)
}

/// Returns whether the frame answers no request: it is a push, or a message on a connection that `subscribed`.
pub(super) fn is_message(frame: &[u8], subscribed: bool) -> bool {
    let named = || word(frame).is_some_and(|word| word.ends_with(b"message") || word.ends_with(b"subscribe"));
    frame.first() == Some(&b'>') || (subscribed && named())
}

fn is_one_of(request: &[u8], names: &[&[u8]]) -> bool {
    word(request).is_some_and(|word| names.iter().any(|name| name.eq_ignore_ascii_case(word)))
}

/// Returns the first string of an array.
fn word(frame: &[u8]) -> Option<&[u8]> {
    let frame = frame.strip_prefix(b"*")?;
    let mut lines = frame.split(|byte| *byte == b'\n');
    let word = lines.nth(2).filter(|_| frame.contains(&b'$'))?;
    word.strip_suffix(b"\r")
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_ends_where_it_ends_and_nowhere_before() {
        let frames: [&[u8]; 12] = [
            b"+OK\r\n",
            b"-ERR \xff\r\n",
            b":-12\r\n",
            b"_\r\n",
            b"$4\r\na\r\nb\r\n",
            b"$-1\r\n",
            b"$0\r\n\r\n",
            b"*-1\r\n",
            b"*2\r\n$1\r\na\r\n*1\r\n:1\r\n",
            b"%1\r\n+a\r\n>1\r\n+b\r\n",
            b"|1\r\n+a\r\n+b\r\n*0\r\n",
            b"=5\r\ntxt:a\r\n",
        ];
        for frame in frames {
            for end in 0..frame.len() {
                assert_eq!(length(&frame[..end]), None, "{frame:?} cut at {end}");
            }
            let followed = [frame, b"+more\r\n"].concat();
            assert_eq!((length(frame), length(&followed)), (Some(frame.len()), Some(frame.len())), "{frame:?}");
        }
        assert_eq!(length(b"\x16\x03\x01"), Some(3));
    }

    #[test]
    fn requests_and_messages_are_recognized_by_their_first_word() {
        assert!(subscribes(b"*2\r\n$10\r\npsubscribe\r\n$1\r\na\r\n"));
        assert!(!subscribes(b"*2\r\n$3\r\nGET\r\n$9\r\nSUBSCRIBE\r\n"));
        assert!(opens(b"*1\r\n$4\r\nping\r\n") && !opens(b"*2\r\n$3\r\nGET\r\n$4\r\nPING\r\n"));
        let message = b"*3\r\n$7\r\nmessage\r\n$1\r\na\r\n$1\r\nb\r\n";
        assert!(is_message(message, true) && !is_message(message, false) && is_message(b">1\r\n+a\r\n", false));
        assert!(!is_message(b"*2\r\n$4\r\npong\r\n$0\r\n\r\n", true) && !is_message(b"+OK\r\n", true));
    }
}
