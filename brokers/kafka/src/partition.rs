//! The deliveries of one partition: a pure state machine, which decides what to deliver, to read again, and to commit.
use std::collections::BTreeMap;
use std::time::Instant;

use idempotent_core::Timestamp;

use crate::outputs::{Output, Outputs};

/// The deliveries of one partition since its assignment to this member.
#[derive(Debug)]
pub(crate) struct Partition {
    pub(crate) generation: u64,
    /// The state of each offset that was read and is not in the prefix. The log has gaps, so offsets may be missing.
    offsets: BTreeMap<i64, OffsetState>,
    /// The offsets in the state `Returning`.
    returning: BTreeMap<i64, Return>,
    held: usize,
    /// The offset after the last message that the client returned.
    position: Option<i64>,
    /// The lowest offset of a message that was read and ignored.
    ignored: Option<i64>,
    /// The offset to commit: all messages before this offset are settled.
    prefix: Option<i64>,
    /// The last offset that was handed to the client for a commit.
    sent: Option<i64>,
    /// True if the client pauses this partition. `None` after the assignment, because the client keeps the pause of an earlier
    /// assignment.
    pub(crate) is_paused: Option<bool>,
    /// The messages to be produced in the transaction that commits the offset.
    pub(crate) outputs: Outputs,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum OffsetState {
    /// Delivered, with the number of the delivery.
    Held(u64),
    Settled,
    Returning,
}

/// The attempt and the time of the first delivery, as a retry has set them.
pub(crate) type RetryMark = (u32, Timestamp);

/// The conditions of the next delivery of a message.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Return {
    pub(crate) due: Instant,
    pub(crate) mark: Option<RetryMark>,
}

/// The decision on a message that was read.
#[derive(Debug, Eq, PartialEq)]
pub(crate) enum Reading {
    Deliver(Option<RetryMark>),
    /// The message is settled or held.
    Skip,
    /// The message is read again later.
    Later,
}

/// The next action of the client on a partition.
#[derive(Debug, Eq, PartialEq)]
pub(crate) enum Step {
    /// Reads on from the current position.
    Read,
    /// Reads again from this offset.
    Seek(i64),
    /// Reads nothing until this time, or until a delivery is settled.
    Pause(Option<Instant>),
}

impl Partition {
    pub(crate) fn new(generation: u64) -> Self {
        Self {
            generation,
            offsets: BTreeMap::new(),
            returning: BTreeMap::new(),
            held: 0,
            position: None,
            ignored: None,
            prefix: None,
            sent: None,
            is_paused: None,
            outputs: Outputs::default(),
        }
    }

    /// Decides on a message that the client returned. `due` is the time of a message in a retry topic, and `number` the number of
    /// its delivery.
    pub(crate) fn read(&mut self, offset: i64, due: Option<Instant>, now: Instant, number: u64) -> Reading {
        let from = self.position.replace(offset + 1).unwrap_or(offset);
        self.ignored = self.ignored.filter(|ignored| !(from..=offset).contains(ignored));
        if self.prefix.is_some_and(|prefix| offset < prefix) {
            return Reading::Skip;
        }
        // The client returns all messages in order, so the log no longer contains those between.
        let gone: Vec<_> = self.returning.range(from..offset.max(from)).map(|(gone, _)| *gone).collect();
        gone.into_iter().for_each(|gone| self.set(gone, OffsetState::Settled));
        self.advance();
        // Earlier messages are delivered first. Otherwise, the prefix could pass a message that was ignored and never delivered.
        let first = self.returning.first_key_value().map(|(first, _)| *first);
        if first.into_iter().chain(self.ignored).any(|earlier| earlier < offset) {
            return Reading::Later;
        }
        match (self.offsets.get(&offset), self.returning.get(&offset).copied()) {
            (Some(OffsetState::Held(_) | OffsetState::Settled), _) => Reading::Skip,
            (_, Some(again)) if again.due > now => Reading::Later,
            (None, _) if let Some(due) = due.filter(|due| *due > now) => {
                self.set(offset, OffsetState::Returning);
                self.returning.insert(offset, Return { due, mark: None });
                Reading::Later
            }
            (_, again) => {
                self.set(offset, OffsetState::Held(number));
                Reading::Deliver(again.and_then(|again| again.mark))
            }
        }
    }

    /// Records that a message was read and cannot be delivered, because the consumer is full.
    pub(crate) fn ignore(&mut self, offset: i64) {
        self.position = Some(offset + 1);
        self.ignored = Some(self.ignored.map_or(offset, |ignored| ignored.min(offset)));
    }

    /// Settles a delivery. Returns false if the delivery does not exist.
    pub(crate) fn settle(&mut self, offset: i64, number: u64) -> bool {
        let is_held = self.holds(offset, number);
        if is_held {
            self.set(offset, OffsetState::Settled);
            self.advance();
        }
        is_held
    }

    /// Returns a delivery, so that its message is delivered again. Returns false if the delivery does not exist.
    pub(crate) fn give_back(&mut self, offset: i64, number: u64, again: Return) -> bool {
        let is_held = self.holds(offset, number);
        if is_held {
            self.set(offset, OffsetState::Returning);
            self.returning.insert(offset, again);
        }
        is_held
    }

    /// Adds a message to the transaction of a delivery. Returns false if no delivery of this offset is held.
    pub(crate) fn add_output(&mut self, offset: i64, output: Output) -> bool {
        let is_held = matches!(self.offsets.get(&offset), Some(OffsetState::Held(_)));
        if is_held {
            self.outputs.add(offset, output);
        }
        is_held
    }

    pub(crate) fn holds(&self, offset: i64, number: u64) -> bool {
        self.offsets.get(&offset) == Some(&OffsetState::Held(number))
    }

    /// Returns the number of deliveries that are neither settled nor returned.
    pub(crate) fn held(&self) -> usize {
        self.held
    }

    /// Returns the next action. `window` is the maximum number of messages from the oldest unsettled one to the last delivered one.
    pub(crate) fn step(&self, now: Instant, window: usize) -> Step {
        let first = self.returning.first_key_value();
        let back = first.map(|(offset, _)| *offset).into_iter().chain(self.ignored).min();
        match (back, first) {
            (Some(back), Some((offset, again))) if back == *offset && again.due > now => Step::Pause(Some(again.due)),
            (Some(back), _) if self.position.is_some_and(|position| back < position) => Step::Seek(back),
            (None, _) if self.offsets.len() >= window => Step::Pause(None),
            _ => Step::Read,
        }
    }

    /// Records that the client reads again from this offset.
    pub(crate) fn sought(&mut self, offset: i64) {
        self.position = Some(offset);
    }

    /// Returns the offset to commit, if the offset has changed since the last call.
    pub(crate) fn commit(&mut self) -> Option<i64> {
        let offset = self.prefix.filter(|_| self.prefix != self.sent)?;
        self.sent = self.prefix;
        Some(offset)
    }

    /// Returns true if the offset to commit has changed.
    pub(crate) fn is_dirty(&self) -> bool {
        self.prefix != self.sent
    }

    /// Records that a commit failed, so that the next call of `commit` repeats the commit.
    pub(crate) fn uncommitted(&mut self) {
        self.sent = None;
    }

    /// Extends the prefix over settled messages.
    fn advance(&mut self) {
        while let Some(entry) = self.offsets.first_entry().filter(|entry| *entry.get() == OffsetState::Settled) {
            self.prefix = Some(entry.key() + 1);
            entry.remove();
        }
    }

    fn set(&mut self, offset: i64, state: OffsetState) {
        let before = self.offsets.insert(offset, state);
        self.held -= usize::from(matches!(before, Some(OffsetState::Held(_))));
        self.held += usize::from(matches!(state, OffsetState::Held(_)));
        if before == Some(OffsetState::Returning) {
            self.returning.remove(&offset);
        }
        if state != OffsetState::Settled {
            self.outputs.discard(offset);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::message::removal;

    const WINDOW: usize = 5;

    /// Reads these offsets. The number of a delivery is its offset.
    fn read(partition: &mut Partition, offsets: impl IntoIterator<Item = i64>, now: Instant) -> Vec<i64> {
        let delivered = |reading| matches!(reading, Reading::Deliver(_));
        offsets
            .into_iter()
            .filter(|offset| delivered(partition.read(*offset, None, now, offset.unsigned_abs())))
            .collect()
    }

    fn settle(partition: &mut Partition, offset: i64) {
        assert!(partition.settle(offset, offset.unsigned_abs()), "{offset} is held");
    }

    fn at(due: Instant) -> Return {
        Return { due, mark: Some((2, Timestamp(9))) }
    }

    #[test]
    fn the_settled_prefix_is_committed_over_gaps_and_in_any_order() {
        let (now, mut partition) = (Instant::now(), Partition::new(1));
        assert_eq!(partition.commit(), None);
        assert_eq!(read(&mut partition, [3, 4, 8, 20], now), [3, 4, 8, 20]);
        settle(&mut partition, 8);
        settle(&mut partition, 4);
        assert_eq!(partition.commit(), None, "3 is held");
        settle(&mut partition, 3);
        assert_eq!((partition.commit(), partition.commit()), (Some(9), None));
        settle(&mut partition, 20);
        assert_eq!(partition.commit(), Some(21));
        partition.uncommitted();
        assert_eq!((partition.commit(), partition.held()), (Some(21), 0));
        assert!(!partition.settle(20, 20), "it is settled");
    }

    #[test]
    fn a_retry_waits_with_all_later_messages_and_settled_or_held_ones_are_not_delivered_again() {
        let (now, mut partition) = (Instant::now(), Partition::new(1));
        read(&mut partition, 0..4, now);
        settle(&mut partition, 2);
        let due = now + Duration::from_secs(1);
        assert!(partition.give_back(1, 1, at(due)));
        assert_eq!(partition.step(now, WINDOW), Step::Pause(Some(due)));
        assert_eq!(partition.read(1, None, now, 5), Reading::Later, "its retry is not due");
        assert_eq!(partition.read(4, None, now, 4), Reading::Later, "it is after the retried one");
        assert_eq!(partition.step(due, WINDOW), Step::Seek(1));
        partition.sought(1);
        assert_eq!(partition.step(due, WINDOW), Step::Read);
        assert_eq!(partition.read(1, None, due, 11), Reading::Deliver(Some((2, Timestamp(9)))));
        assert_eq!(read(&mut partition, [2, 3, 4], due), [4]);
        assert!(!partition.settle(1, 1), "a new delivery has another number");
        assert!(partition.settle(1, 11));
        for offset in [0, 3, 4] {
            settle(&mut partition, offset);
        }
        assert_eq!(partition.commit(), Some(5));
    }

    #[test]
    fn a_retried_message_that_the_log_has_dropped_blocks_nothing() {
        let (now, mut partition) = (Instant::now(), Partition::new(1));
        read(&mut partition, 0..3, now);
        assert!(partition.give_back(0, 0, at(now)) && partition.give_back(2, 2, at(now)));
        settle(&mut partition, 1);
        assert_eq!(partition.step(now, WINDOW), Step::Seek(0));
        partition.sought(0);
        assert_eq!(partition.read(7, None, now, 7), Reading::Deliver(None));
        assert_eq!((partition.commit(), partition.step(now, WINDOW)), (Some(3), Step::Read));
    }

    #[test]
    fn a_message_of_a_retry_topic_is_delivered_when_it_is_due() {
        let (now, mut partition) = (Instant::now(), Partition::new(1));
        let due = now + Duration::from_secs(1);
        assert_eq!(partition.read(5, Some(due), now, 1), Reading::Later);
        assert_eq!(partition.commit(), None);
        assert_eq!(partition.step(now, WINDOW), Step::Pause(Some(due)));
        assert_eq!(partition.step(due, WINDOW), Step::Seek(5));
        partition.sought(5);
        assert_eq!(partition.read(5, Some(due), due, 2), Reading::Deliver(None));
        assert_eq!(partition.read(6, Some(due), due, 3), Reading::Deliver(None), "due at this instant");
    }

    #[test]
    fn a_full_window_pauses_until_the_oldest_message_is_settled() {
        let (now, mut partition) = (Instant::now(), Partition::new(1));
        read(&mut partition, 0..5, now);
        settle(&mut partition, 4);
        assert_eq!(partition.step(now, WINDOW), Step::Pause(None));
        settle(&mut partition, 0);
        assert_eq!(partition.step(now, WINDOW), Step::Read);
    }

    #[test]
    fn messages_are_produced_for_the_acknowledged_deliveries_before_the_offset() {
        let (now, mut partition) = (Instant::now(), Partition::new(1));
        let output = |topic: i64| Output { topic: topic.to_string(), copy: removal(Vec::new()) };
        let topics = |partition: &Partition, offset| {
            partition.outputs.before(offset).map(|output| output.topic.clone()).collect::<Vec<_>>()
        };
        read(&mut partition, 0..3, now);
        for offset in 0..3 {
            assert!(partition.add_output(offset, output(offset)));
        }
        assert!(!partition.add_output(3, output(3)), "it is not held");
        settle(&mut partition, 0);
        settle(&mut partition, 2);
        assert!(!partition.add_output(2, output(2)), "it is settled");
        assert!(partition.give_back(1, 1, at(now)));
        assert_eq!((partition.commit(), topics(&partition, 1)), (Some(1), vec!["0".to_owned()]));
        partition.outputs.produced(1);
        partition.sought(1);
        assert_eq!(partition.read(1, None, now, 11), Reading::Deliver(Some((2, Timestamp(9)))));
        assert!(partition.settle(1, 11));
        assert_eq!((partition.commit(), topics(&partition, 3)), (Some(3), vec!["2".to_owned()]));
    }

    #[test]
    fn no_message_is_delivered_before_an_earlier_one_that_was_ignored() {
        let (now, mut partition) = (Instant::now(), Partition::new(1));
        read(&mut partition, [0], now);
        settle(&mut partition, 0);
        partition.ignore(1);
        // Seeking has failed, so the client reads on.
        assert_eq!(partition.read(2, None, now, 2), Reading::Later);
        assert_eq!((partition.commit(), partition.step(now, WINDOW)), (Some(1), Step::Seek(1)));
        partition.sought(1);
        assert_eq!(read(&mut partition, [1, 2], now), [1, 2]);
    }

    #[test]
    fn a_settled_message_that_was_ignored_when_it_was_read_again_is_not_read_for_ever() {
        let (now, mut partition) = (Instant::now(), Partition::new(1));
        read(&mut partition, 0..2, now);
        assert!(partition.give_back(0, 0, at(now)));
        partition.sought(0);
        read(&mut partition, [0], now);
        partition.ignore(1);
        settle(&mut partition, 0);
        settle(&mut partition, 1);
        assert_eq!(partition.step(now, WINDOW), Step::Seek(1));
        partition.sought(1);
        assert_eq!((partition.read(1, None, now, 3), partition.step(now, WINDOW)), (Reading::Skip, Step::Read));
    }

    #[test]
    fn an_ignored_message_is_read_again() {
        let (now, mut partition) = (Instant::now(), Partition::new(1));
        read(&mut partition, [0], now);
        partition.ignore(1);
        partition.ignore(2);
        assert_eq!(partition.step(now, WINDOW), Step::Seek(1));
        partition.sought(1);
        assert_eq!(read(&mut partition, [1, 2], now), [1, 2]);
        assert_eq!(partition.step(now, WINDOW), Step::Read);
    }
}
