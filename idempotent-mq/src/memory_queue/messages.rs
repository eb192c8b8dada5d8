//! The messages of a queue in memory: waiting, held by consumers, and dead.
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::{DeadLetter, Delivery, Settlement};

/// The longest delay. The sum of a time and a longer delay might not exist.
pub(super) const LONGEST: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// The messages of a queue. A message keeps its number for all its deliveries, and each delivery has its own tag.
#[derive(Default)]
pub(super) struct Messages {
    /// The last number of a message.
    last_message: u64,
    /// The last tag of a delivery.
    last_tag: u64,
    /// The last number of a dead letter.
    last_dead: u64,
    /// Messages by the time at which they are due, then by their number.
    waiting: BTreeMap<Place, Box<Delivery>>,
    /// Messages by tag, with their place before the delivery.
    held: BTreeMap<u64, (Place, Box<Delivery>)>,
    dead: BTreeMap<u64, (Delivery, DeadLetter)>,
}

/// The time at which a message is due, and the number of the message.
type Place = (Instant, u64);

impl Messages {
    /// Adds a message that is due at this time.
    pub(super) fn add(&mut self, due: Instant, delivery: impl FnOnce(u64) -> Delivery) {
        self.last_message += 1;
        self.waiting.insert((due, self.last_message), Box::new(delivery(self.last_message)));
    }

    /// Hands out up to `room` messages that are due, with tags that `tag` makes of their numbers.
    pub(super) fn take<T>(&mut self, now: Instant, room: usize, tag: impl Fn(u64) -> T) -> Vec<(Delivery, T)> {
        let mut taken = Vec::new();
        while taken.len() < room {
            let Some(first) = self.waiting.first_entry().filter(|first| first.key().0 <= now) else { break };
            let (place, mut delivery) = first.remove_entry();
            let delivered = delivery.delivered.unwrap_or(0).saturating_add(1);
            (delivery.delivered, delivery.redelivered) = (Some(delivered), delivered > 1);
            delivery.attempt.get_or_insert(1);
            self.last_tag += 1;
            if taken.is_empty() {
                taken.reserve(room.min(self.waiting.len() + 1));
            }
            taken.push(((*delivery).clone(), tag(self.last_tag)));
            self.held.insert(self.last_tag, (place, delivery));
        }
        taken
    }

    /// Returns the time at which the next message is due.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.waiting.first_key_value().map(|((due, _), _)| *due)
    }

    /// Settles a delivery. Returns false if the delivery no longer holds its message.
    pub(super) fn settle(&mut self, now: Instant, tag: u64, settlement: &Settlement) -> bool {
        let Some((place, mut delivery)) = self.held.remove(&tag) else { return false };
        match settlement {
            Settlement::Ack => {}
            Settlement::Retry(retry) => {
                (delivery.attempt, delivery.first_at) = (Some(retry.attempt), Some(retry.first_at));
                self.waiting.insert((now + retry.after.min(LONGEST), place.1), delivery);
            }
            Settlement::DeadLetter(letter) => {
                self.last_dead += 1;
                self.dead.insert(self.last_dead, (*delivery, letter.clone()));
            }
            Settlement::GiveBack => drop(self.waiting.insert(place, delivery)),
        }
        true
    }

    /// Returns the message of a delivery to its place, if the delivery still holds the message.
    pub(super) fn give_back(&mut self, tag: u64) {
        self.waiting.extend(self.held.remove(&tag));
    }

    /// Returns all held messages to their places.
    pub(super) fn redeliver(&mut self) {
        self.waiting.extend(std::mem::take(&mut self.held).into_values());
    }

    pub(super) fn pending(&self) -> usize {
        self.waiting.len() + self.held.len()
    }

    pub(super) fn dead_letters(&self) -> impl ExactSizeIterator<Item = &(Delivery, DeadLetter)> {
        self.dead.values()
    }

    /// Returns the oldest dead letter after the one with this number, and its number.
    pub(super) fn dead_after(&self, number: u64) -> Option<(u64, (Delivery, DeadLetter))> {
        self.dead.range(number + 1..).next().map(|(number, letter)| (*number, letter.clone()))
    }

    /// Removes a dead letter. Returns false if the letter is gone.
    pub(super) fn discard(&mut self, number: u64) -> bool {
        self.dead.remove(&number).is_some()
    }

    /// Moves a dead letter to the end of the queue, as a first attempt with its deaths. Returns false if the letter is gone.
    pub(super) fn put_back(&mut self, now: Instant, number: u64) -> bool {
        let Some((mut delivery, letter)) = self.dead.remove(&number) else { return false };
        (delivery.attempt, delivery.delivered, delivery.redelivered) = (None, None, false);
        (delivery.first_at, delivery.deaths) = (Some(letter.first_at), letter.deaths);
        self.add(now, |_| delivery);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Position, Retry};

    #[test]
    fn messages_due_at_one_time_keep_their_order_and_count_their_deliveries() {
        let (mut messages, now) = (Messages::default(), Instant::now());
        for id in ["a", "b"] {
            messages.add(now, |_| Delivery::new(Position::of("q"), Vec::new()).id(id));
        }
        let taken = messages.take(now, 1, |tag| tag);
        assert_eq!(
            (taken[0].0.id.as_deref(), taken[0].0.delivered, taken[0].0.redelivered),
            (Some("a"), Some(1), false)
        );
        assert_eq!(messages.pending(), 2, "one with a consumer, and one that waits");
        let first_at = idempotent_core::Timestamp(1);
        let retry = Retry { after: Duration::ZERO, attempt: 2, first_at, reason: "".into() };
        assert!(messages.settle(now, taken[0].1, &Settlement::Retry(retry)));
        let again = messages.take(now, 9, |tag| tag);
        let seen = again.iter().map(|(delivery, _)| (delivery.id.as_deref(), delivery.delivered, delivery.redelivered));
        assert_eq!(seen.collect::<Vec<_>>(), [(Some("a"), Some(2), true), (Some("b"), Some(1), false)]);
    }
}
