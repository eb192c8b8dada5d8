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
    pub(crate) fn rest(&self, delivery: &Delivery, now: Instant) -> Option<Duration> {
        if !matches!(self.delays, DelaySupport::UpTo(_)) {
            return None;
        }
        let name = name(delivery)?;
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
