//! The caution of a source whose sessions end before a delivery is settled.
//!
//! The client ends the connection at a message with data that it cannot represent. The message returns to the head of
//! its queue, and ends the next session, too. With a prefetch limit of one, the messages before it are settled, and no
//! other message is delivered again and again.

/// The sessions in a row that ended before a delivery was settled.
#[derive(Debug, Default)]
pub(crate) struct Caution {
    vain: u32,
}

/// Number of such sessions after which the prefetch limit is one.
const SUSPICIOUS: u32 = 2;

impl Caution {
    /// Records the end of a session with this number of settled deliveries. Returns the number of sessions in a row that
    /// ended before a delivery was settled, or `None` if this one did not.
    pub(crate) fn note_end(&mut self, settled: u64) -> Option<u32> {
        if settled > 0 {
            // During caution, the messages before the suspicious one are settled.
            self.vain = if self.is_on() { SUSPICIOUS } else { 0 };
            return None;
        }
        self.vain = self.vain.saturating_add(1);
        Some(self.vain)
    }

    /// Returns the prefetch limit of the next session.
    pub(crate) fn limit(&self, prefetch: usize) -> usize {
        if self.is_on() { 1 } else { prefetch }
    }

    /// Ends the caution if the session has settled as many deliveries as a session without caution holds. Returns true
    /// if the caution has ended now.
    pub(crate) fn ends_after(&mut self, settled: u64, prefetch: usize) -> bool {
        let ends = self.is_on() && settled >= prefetch as u64;
        if ends {
            self.vain = 0;
        }
        ends
    }

    fn is_on(&self) -> bool {
        self.vain >= SUSPICIOUS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn caution_begins_after_two_vain_sessions_and_ends_after_a_whole_prefetch_of_settled_deliveries() {
        let mut caution = Caution::default();
        assert_eq!((caution.note_end(0), caution.limit(10)), (Some(1), 10));
        assert_eq!((caution.note_end(3), caution.note_end(0), caution.limit(10)), (None, Some(1), 10));
        assert_eq!((caution.note_end(0), caution.limit(10)), (Some(2), 1));
        assert_eq!((caution.note_end(9), caution.limit(10)), (None, 1), "the suspicious message may be next");
        assert_eq!((caution.note_end(0), caution.limit(10)), (Some(3), 1));
        assert!(!caution.ends_after(9, 10) && caution.ends_after(10, 10));
        assert_eq!((caution.limit(10), caution.ends_after(11, 10)), (10, false));
    }
}
