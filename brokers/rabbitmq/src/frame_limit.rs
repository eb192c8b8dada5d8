//! The size of properties and headers. All of a message's properties and headers are in one frame, whose size the broker
//! limits (`frame_max`). The broker and the client end the connection at a larger frame.
use lapin::protocol::basic::gen_properties;
use lapin::{BasicProperties, Connection};

use crate::Queue;

/// The limit of one connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FrameLimit {
    /// Maximum size of a frame in bytes.
    max: usize,
}

/// The size of a frame without properties: the header and the end of the frame, the class, the weight, and the size of
/// the body.
const FIXED_BYTES: usize = 20;
/// The bytes that the broker adds when it delivers a message again: the two counts of a quorum queue. A redrive adds a
/// prefix to four headers.
const DELIVERY_ROOM: usize = 200;
/// The bytes that the broker adds to a retried message, without names of queues: an entry in `x-death`, the headers of
/// the first and the last death, and a second entry if the message is then dead-lettered by the broker.
const RETRY_ROOM: usize = DELIVERY_ROOM + 560;
/// The number of times that these headers contain the name of a retry queue or of the consumed queue.
const NAMES: usize = 6;
/// The length that the name of a retry queue adds to the name of the consumed queue, at most.
const RETRY_SUFFIX: usize = 20;

impl FrameLimit {
    pub(crate) fn new(connection: &Connection) -> Self {
        Self::of(connection.configuration().frame_max() as usize)
    }

    /// Creates the limit for frames of at most this size. Zero is no limit.
    fn of(frame_max: usize) -> Self {
        Self { max: if frame_max == 0 { usize::MAX } else { frame_max } }
    }

    /// Returns whether a message can be sent, if the broker adds at most `room` bytes before the delivery.
    pub(crate) fn fits(self, properties: &BasicProperties, room: usize) -> bool {
        frame_bytes(properties).saturating_add(room) <= self.max
    }

    /// Returns whether a copy for a retry can be sent and delivered.
    pub(crate) fn fits_retry(self, copy: &BasicProperties, queue: &Queue) -> bool {
        self.fits(copy, RETRY_ROOM + NAMES * (queue.name.len() + RETRY_SUFFIX))
    }

    /// Returns whether a dead letter or a redriven message can be sent, delivered and redriven.
    pub(crate) fn fits_letter(self, letter: &BasicProperties) -> bool {
        self.fits(letter, DELIVERY_ROOM)
    }
}

/// Returns whether these properties fit into the smallest frames that a broker may be set to.
pub(crate) fn fits_any_frame(properties: &BasicProperties) -> bool {
    FrameLimit::of(MIN_FRAME_MAX).fits(properties, 0)
}

/// The smallest `frame_max` of the protocol.
const MIN_FRAME_MAX: usize = 4096;

/// Returns the size of the frame with these properties.
fn frame_bytes(properties: &BasicProperties) -> usize {
    match gen_properties::<Vec<u8>>(properties)(Vec::new().into()) {
        Ok(written) => FIXED_BYTES.saturating_add(written.into_inner().0.len()),
        // The client could not send the properties either.
        Err(_) => usize::MAX,
    }
}

#[cfg(test)]
mod tests {
    use lapin::types::{AMQPValue, FieldTable};

    use super::*;

    fn with_header(bytes: usize) -> BasicProperties {
        let mut headers = FieldTable::default();
        headers.insert("h".into(), AMQPValue::LongString("v".repeat(bytes).into()));
        BasicProperties::default().with_headers(headers)
    }

    #[test]
    fn the_size_of_a_frame_is_that_of_the_protocol() {
        // Flags: 2. The table: 4 for its length, 2 for the name, 1 for the type, 4 for the length of the value.
        assert_eq!((frame_bytes(&BasicProperties::default()), frame_bytes(&with_header(100))), (22, 22 + 11 + 100));
    }

    #[test]
    fn a_copy_fits_up_to_the_limit_less_the_room_for_what_the_broker_adds() {
        let (limit, queue) = (FrameLimit::of(131_072), Queue::quorum("orders"));
        let retry_room = 760 + 6 * (6 + 20);
        for (room, fits) in [(retry_room, true), (200, false)] {
            let most = 131_072 - room - 33;
            let each = |more: usize| {
                let copy = with_header(most - 1 + more);
                if fits { limit.fits_retry(&copy, &queue) } else { limit.fits_letter(&copy) }
            };
            assert_eq!([0, 1, 2].map(each), [true, true, false]);
        }
        assert!(FrameLimit::of(0).fits_retry(&with_header(1 << 20), &queue), "a broker without a limit");
    }
}
