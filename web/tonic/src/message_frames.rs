//! The length-prefixed messages of a gRPC body.

/// The bytes before each message: a flag of compression and the length of the message.
pub(crate) const PREFIX: usize = 5;

/// A reader of the first prefix of a body. It compares the length of the first message with the bytes of the body.
#[derive(Debug, Default)]
pub(crate) struct MessageFrames {
    prefix: [u8; PREFIX],
    size: u64,
}

/// The part of the first message that has arrived.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Progress {
    /// No byte.
    Empty,
    /// A part of the prefix or of the message.
    Partial,
    /// One message, and nothing after it.
    One,
    /// One message, and the begin of another.
    Several,
}

impl MessageFrames {
    /// Adds the next bytes of the body.
    pub(crate) fn push(&mut self, piece: &[u8]) {
        let read = PREFIX.min(usize::try_from(self.size).unwrap_or(PREFIX));
        self.prefix[read..].iter_mut().zip(piece).for_each(|(to, byte)| *to = *byte);
        self.size += piece.len() as u64;
    }

    /// Returns the number of bytes of the body so far.
    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    pub(crate) fn progress(&self) -> Progress {
        // Bytes of the prefix that have not arrived are zero.
        let [_, length @ ..] = self.prefix;
        let end = PREFIX as u64 + u64::from(u32::from_be_bytes(length));
        match self.size {
            0 => Progress::Empty,
            size if size < end => Progress::Partial,
            size if size == end => Progress::One,
            _ => Progress::Several,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the progress after pieces of this size.
    fn progress(body: &[u8], piece: usize) -> Progress {
        let mut frames = MessageFrames::default();
        body.chunks(piece).for_each(|piece| frames.push(piece));
        assert_eq!(frames.size(), body.len() as u64);
        frames.progress()
    }

    #[test]
    fn the_progress_does_not_depend_on_the_pieces() {
        let body = b"\0\0\0\0\x03tea\0\0\0\0\0";
        for piece in 1..=body.len() {
            assert_eq!(progress(&body[..0], piece), Progress::Empty);
            for size in 1..8 {
                assert_eq!(progress(&body[..size], piece), Progress::Partial, "{size} bytes");
            }
            assert_eq!(progress(&body[..8], piece), Progress::One);
            for size in 9..=body.len() {
                assert_eq!(progress(&body[..size], piece), Progress::Several, "{size} bytes");
            }
        }
    }

    #[test]
    fn an_empty_message_is_a_message() {
        assert_eq!(progress(b"\0\0\0\0\0", 2), Progress::One);
        assert_eq!(progress(b"\0\0\0\0\0\0", 2), Progress::Several);
    }

    #[test]
    fn the_longest_message_has_its_length() {
        assert_eq!(progress(b"\x01\xff\xff\xff\xff", 5), Progress::Partial);
    }
}
