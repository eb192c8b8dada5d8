//! Retries that are longer than the longest delay of the broker.
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::{DelaySupport, Delivery, Position};

/// The due times of messages that return early because their broker cannot delay them for long enough. Kept in memory: after a
/// restart, such messages run earlier, which is safe.
#[derive(Debug)]
pub(crate) struct PostponedRetries {
    delays: DelaySupport,
    due: Mutex<HashMap<MessageName, Instant>>,
}

/// The identity by which a message is recognized when it returns.
#[derive(Debug, Eq, Hash, PartialEq)]
enum MessageName {
    Place(Position),
    Id(Position, String),
}

/// The maximum number of entries. Further messages return early.
const MOST: usize = 10_000;

impl PostponedRetries {
    pub(crate) fn new(delays: DelaySupport) -> Self {
        Self { delays, due: Mutex::default() }
    }

    /// Returns the delay for the broker, and remembers the rest of `after`.
    pub(crate) fn step(&self, delivery: &Delivery, after: Duration, now: Instant) -> Duration {
        let DelaySupport::UpTo(most) = self.delays else { return after };
        if after > most
            && let (Some(name), Some(due)) = (name(delivery), now.checked_add(after))
        {
            let mut all = self.lock();
            if all.len() >= MOST {
                all.retain(|_, due| *due > now);
            }
            if all.len() < MOST {
                all.insert(name, due);
            }
        }
        after.min(most)
    }

    /// Returns the time until an early delivery is due.
    pub(crate) fn rest(&self, delivery: &Delivery, now: impl FnOnce() -> Instant) -> Option<Duration> {
        if !matches!(self.delays, DelaySupport::UpTo(_)) {
            return None;
        }
        let (name, now) = (name(delivery)?, now());
        let mut all = self.lock();
        let rest = all.get(&name)?.saturating_duration_since(now);
        if rest.is_zero() {
            all.remove(&name);
            return None;
        }
        Some(rest)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<MessageName, Instant>> {
        self.due.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn name(delivery: &Delivery) -> Option<MessageName> {
    match (&delivery.position, &delivery.id) {
        (position @ Position { offset: Some(_), .. }, _) => Some(MessageName::Place(position.clone())),
        (position, Some(id)) => Some(MessageName::Id(position.clone(), id.clone())),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    fn at(offset: usize) -> Delivery {
        Delivery::new(Position::of("orders").offset(offset), Vec::new())
    }

    #[test]
    fn only_a_delay_that_the_broker_cannot_keep_is_remembered() {
        let (retries, now) = (PostponedRetries::new(DelaySupport::UpTo(MINUTE)), Instant::now());
        assert_eq!(retries.step(&at(1), MINUTE, now), MINUTE);
        assert_eq!(retries.rest(&at(1), || now), None);
        assert_eq!(retries.step(&at(1), 3 * MINUTE, now), MINUTE);
        assert_eq!(retries.rest(&at(1), || now + MINUTE), Some(2 * MINUTE));
        assert_eq!(retries.rest(&at(2), || now + MINUTE), None);
        assert_eq!([0; 2].map(|_| retries.rest(&at(1), || now + 3 * MINUTE)), [None, None]);
    }

    #[test]
    fn a_full_table_makes_room_only_from_messages_that_are_due() {
        let (retries, now) = (PostponedRetries::new(DelaySupport::UpTo(MINUTE)), Instant::now());
        for offset in 0..MOST {
            retries.step(&at(offset), 2 * MINUTE, now);
        }
        retries.step(&at(MOST), 2 * MINUTE, now);
        assert_eq!(retries.rest(&at(MOST), || now), None);
        assert_eq!(retries.rest(&at(0), || now), Some(2 * MINUTE));
        let later = now + 2 * MINUTE;
        retries.step(&at(MOST), 2 * MINUTE, later);
        assert_eq!(retries.rest(&at(MOST), || later), Some(2 * MINUTE));
        assert_eq!(retries.lock().len(), 1);
    }
}
