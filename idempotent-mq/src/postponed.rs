//! Retries that are longer than the broker's longest delay.
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::{DelaySupport, Delivery, Position};

/// When messages are due that come back before it, because their broker cannot delay them for long enough. Kept in this
/// process only: forgotten, they run earlier than they should, which is safe.
#[derive(Debug)]
pub(crate) struct Postponed {
    delays: DelaySupport,
    due: Mutex<HashMap<Name, Instant>>,
}

/// What tells a message again when it comes back.
#[derive(Debug, Eq, Hash, PartialEq)]
enum Name {
    Place(Position),
    Id(Position, String),
}

/// Beyond this many, messages come back early.
const MOST: usize = 10_000;

impl Postponed {
    pub(crate) fn new(delays: DelaySupport) -> Self {
        Self { delays, due: Mutex::default() }
    }

    /// How long to tell the broker for a delay of `after` from `now`; the rest is remembered.
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

    /// What is left until this delivery is due, if it came early.
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

    fn lock(&self) -> MutexGuard<'_, HashMap<Name, Instant>> {
        self.due.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn name(delivery: &Delivery) -> Option<Name> {
    match (&delivery.position, &delivery.id) {
        (position @ Position { offset: Some(_), .. }, _) => Some(Name::Place(position.clone())),
        (position, Some(id)) => Some(Name::Id(position.clone(), id.clone())),
        _ => None,
    }
}
