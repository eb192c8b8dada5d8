//! The order table of one stream: the numbers that are expected, and the largest number that was admitted.
//!
//! A table is one value that is read and replaced as a whole, so every change is a pure function in this file and the same for
//! each store. A table stays short: of the admitted numbers it keeps the largest only, and consecutive numbers that were not
//! delivered yet are one range.
use std::time::Duration;

use crate::{Key, Micros, StateKind};

/// The largest number of ranges that may wait in one stream. Each delivered number is a range of its own; consecutive expected
/// numbers are one range.
pub const MAX_LINE: usize = 4_096;

/// The order table of a stream.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct OrderTable {
    /// The number of admissions. The count grows with each admission, so that no two versions of a table are equal.
    pub(crate) entries: u64,
    /// The largest number that was admitted. All smaller numbers are over.
    pub(crate) last: Option<LastAdmitted>,
    /// The call that was admitted last, unless it is known to be over.
    pub(crate) admitted: Option<Admitted>,
    /// The ranges above the largest admitted number, in ascending order.
    pub(crate) waiting: Vec<NumberRange>,
}

/// The largest number that was admitted.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct LastAdmitted {
    pub(crate) number: u64,
    pub(crate) key: Key,
    /// True if the number is consumed, even if its record has expired since.
    pub(crate) done: bool,
}

/// A call that was admitted.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Admitted {
    pub(crate) key: Key,
    /// The time until which the call may run although its record does not say so: it has not claimed its key yet, or claims it
    /// in a transaction.
    pub(crate) until: Micros,
}

/// A range of numbers, inclusive at both ends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct NumberRange {
    pub(crate) from: u64,
    pub(crate) to: u64,
    /// The deliveries of the number. Set only for a range of one number.
    pub(crate) seen: Option<WaitTimes>,
}

/// The first and the last delivery of a waiting number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct WaitTimes {
    pub(crate) first: Micros,
    pub(crate) last: Micros,
}

/// The numbers that a number comes after.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Precedence {
    /// All earlier numbers are over.
    Nothing,
    /// The number that was admitted last, which is not known to be over.
    LastAdmitted(Key),
    /// Numbers that were not admitted yet, and the last delivery of any of them. An admission of a larger number makes all of
    /// them late.
    Expected(Option<Micros>),
}

/// The error of a table that holds [`MAX_LINE`] ranges.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct TableFull;

impl OrderTable {
    /// Notes that a number is expected. Returns false if the number is over already.
    pub(crate) fn expect(&mut self, number: u64) -> Result<bool, TableFull> {
        if self.is_over(number) {
            return Ok(false);
        }
        let at = self.waiting.partition_point(|range| range.to < number);
        if self.waiting.get(at).is_some_and(|range| range.from <= number) {
            return Ok(true);
        }
        let grows = |range: &NumberRange| range.seen.is_none();
        let below = at.checked_sub(1).filter(|below| {
            let range = self.waiting[*below];
            grows(&range) && range.to.checked_add(1) == Some(number)
        });
        let above = self.waiting.get(at).filter(|range| grows(range) && range.from.checked_sub(1) == Some(number));
        match (below, above.copied()) {
            (Some(below), Some(above)) => {
                self.waiting[below].to = above.to;
                self.waiting.remove(at);
            }
            (Some(below), None) => self.waiting[below].to = number,
            (None, Some(_)) => self.waiting[at].from = number,
            (None, None) => {
                self.has_room(1)?;
                self.waiting.insert(at, NumberRange { from: number, to: number, seen: None });
            }
        }
        Ok(true)
    }

    /// Notes that a number was delivered and waits. With `restarts`, the time of its wait restarts now.
    pub(crate) fn note_delivery(&mut self, number: u64, now: Micros, restarts: bool) -> Result<(), TableFull> {
        if self.is_over(number) {
            return Ok(());
        }
        let at = self.waiting.partition_point(|range| range.to < number);
        let mine = NumberRange { from: number, to: number, seen: Some(WaitTimes { first: now, last: now }) };
        let Some(range) = self.waiting.get_mut(at).filter(|range| range.from <= number) else {
            self.has_room(1)?;
            self.waiting.insert(at, mine);
            return Ok(());
        };
        if let Some(seen) = &mut range.seen {
            seen.last = seen.last.max(now);
            if restarts {
                seen.first = now;
            }
            return Ok(());
        }
        let whole = *range;
        let below = (whole.from < number).then(|| NumberRange { to: number - 1, ..whole });
        let above = (number < whole.to).then(|| NumberRange { from: number + 1, ..whole });
        let parts: Vec<_> = [below, Some(mine), above].into_iter().flatten().collect();
        self.has_room(parts.len() - 1)?;
        self.waiting.splice(at..=at, parts);
        Ok(())
    }

    /// Admits a number. From then on all smaller numbers are over, including those that never arrived.
    pub(crate) fn admit(&mut self, number: u64, key: &Key, until: Micros) {
        if !self.is_late(number, key) {
            self.last = Some(LastAdmitted { number, key: key.clone(), done: false });
            let over = self.waiting.partition_point(|range| range.to <= number);
            self.waiting.drain(..over);
            if let Some(first) = self.waiting.first_mut().filter(|first| first.from <= number) {
                first.from = number + 1;
            }
        }
        self.entries += 1;
        self.admitted = Some(Admitted { key: key.clone(), until });
    }

    /// Notes that a number is consumed. Returns true if the table has changed.
    pub(crate) fn note_done(&mut self, number: u64, key: &Key) -> bool {
        let before = (self.last.as_ref().map(|last| last.done), self.admitted.is_some());
        if let Some(last) = self.last.as_mut().filter(|last| last.number == number && last.key == *key) {
            last.done = true;
        }
        self.admitted.take_if(|admitted| admitted.key == *key);
        before != (self.last.as_ref().map(|last| last.done), self.admitted.is_some())
    }

    /// Returns true if a larger number was admitted, or this number under another key.
    pub(crate) fn is_late(&self, number: u64, key: &Key) -> bool {
        self.last.as_ref().is_some_and(|last| last.number > number || last.number == number && last.key != *key)
    }

    /// Returns the numbers that this number comes after.
    pub(crate) fn before(&self, number: u64) -> Precedence {
        if self.is_over(number) {
            return Precedence::Nothing;
        }
        let at = self.waiting.partition_point(|range| range.from < number);
        let below = &self.waiting[..at];
        match &self.last {
            _ if !below.is_empty() => {
                Precedence::Expected(below.iter().filter_map(|range| range.seen).map(|seen| seen.last).max())
            }
            Some(last) if !last.done => Precedence::LastAdmitted(last.key.clone()),
            _ => Precedence::Nothing,
        }
    }

    /// Returns the deliveries of a waiting number.
    pub(crate) fn seen(&self, number: u64) -> Option<WaitTimes> {
        let at = self.waiting.partition_point(|range| range.to < number);
        self.waiting.get(at).filter(|range| range.from == number)?.seen
    }

    /// Returns true if this number or a larger one was admitted.
    fn is_over(&self, number: u64) -> bool {
        self.last.as_ref().is_some_and(|last| last.number >= number)
    }

    fn has_room(&self, more: usize) -> Result<(), TableFull> {
        if self.waiting.len() + more > MAX_LINE { Err(TableFull) } else { Ok(()) }
    }
}

impl Admitted {
    /// Returns true if the call may be running, by the state of its record.
    pub(crate) fn may_run(&self, found: Option<&crate::State>, now: Micros) -> bool {
        match found {
            Some(crate::State::Consuming { until, .. }) => (*until).max(self.until) > now,
            Some(state) if state.kind() != StateKind::Vacant => false,
            _ => self.until > now,
        }
    }
}

/// Returns the time for which a table is kept after its last change: as long as the records of its calls, and while one of them
/// waits.
pub(crate) fn retention(retain: Duration, memory: Duration, patience: Duration) -> Duration {
    retain.max(memory).max(patience.saturating_mul(2))
}

#[cfg(test)]
#[path = "order_table_tests.rs"]
mod tests;
