//! The order table of one stream: its expected numbers and the largest admitted one.
//!
//! A table is one value that is read and replaced as a whole, so each operation is a pure function, and the same in
//! each store. The table stays short: admitted numbers leave only the largest one, and consecutive numbers that were
//! not delivered yet share one range.
use std::time::Duration;

use crate::{Key, StateKind, Timestamp};

/// The maximum number of waiting ranges of a stream. Each delivered number is a range of its own. Consecutive numbers
/// that are only expected share one range.
pub const MAX_WAITING_RANGES: usize = 4_096;

/// The order table of a stream.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct OrderTable {
    /// The number of admissions. Grows with each one, so that no two versions of a table are equal.
    pub(crate) admissions: u64,
    /// The largest admitted number. All smaller numbers are over.
    pub(crate) last: Option<LastAdmitted>,
    /// The last admitted call, unless its run is known to have ended.
    pub(crate) admitted: Option<Admitted>,
    /// The numbers above the last admitted one, ascending.
    pub(crate) waiting: Vec<NumberRange>,
}

/// The largest admitted number.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct LastAdmitted {
    pub(crate) number: u64,
    pub(crate) key: Key,
    /// True once the call is consumed, even if its record expires later.
    pub(crate) is_consumed: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Admitted {
    pub(crate) key: Key,
    /// The time until which the call may run without a sign in its record: it is about to claim, or claims in a
    /// transaction.
    pub(crate) until: Timestamp,
}

/// An inclusive range of numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct NumberRange {
    pub(crate) from: u64,
    pub(crate) to: u64,
    /// The deliveries so far; only for a single number.
    pub(crate) wait_times: Option<WaitTimes>,
}

/// The first and the last delivery of a number's message.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct WaitTimes {
    pub(crate) first: Timestamp,
    pub(crate) last: Timestamp,
}

/// The predecessor of a number.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Precedence {
    /// No open predecessor.
    Nothing,
    /// The last admitted call, which is not known to have ended.
    LastAdmitted(Key),
    /// Numbers that were not admitted yet, with the last delivery of any of them. Admitting a larger number makes all
    /// of them late.
    Expected(Option<Timestamp>),
}

/// The error of a table without room for more ranges.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct TableFull;

impl OrderTable {
    /// Registers an expected number. Returns false if the number is too late, since a larger one was admitted.
    pub(crate) fn expect_number(&mut self, number: u64) -> Result<bool, TableFull> {
        if self.is_passed(number) {
            return Ok(false);
        }
        let at = self.waiting.partition_point(|range| range.to < number);
        if self.waiting.get(at).is_some_and(|range| range.from <= number) {
            return Ok(true);
        }
        let grows = |range: &NumberRange| range.wait_times.is_none();
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
                self.check_room(1)?;
                self.waiting.insert(at, NumberRange { from: number, to: number, wait_times: None });
            }
        }
        Ok(true)
    }

    /// Records a delivery of a number that has to wait. With `restart`, its waiting time starts again now.
    pub(crate) fn record_wait(&mut self, number: u64, now: Timestamp, restart: bool) -> Result<(), TableFull> {
        if self.is_passed(number) {
            return Ok(());
        }
        let at = self.waiting.partition_point(|range| range.to < number);
        let own = NumberRange { from: number, to: number, wait_times: Some(WaitTimes { first: now, last: now }) };
        let Some(range) = self.waiting.get_mut(at).filter(|range| range.from <= number) else {
            self.check_room(1)?;
            self.waiting.insert(at, own);
            return Ok(());
        };
        if let Some(wait_times) = &mut range.wait_times {
            wait_times.last = wait_times.last.max(now);
            if restart {
                wait_times.first = now;
            }
            return Ok(());
        }
        let whole = *range;
        let below = (whole.from < number).then(|| NumberRange { to: number - 1, ..whole });
        let above = (number < whole.to).then(|| NumberRange { from: number + 1, ..whole });
        let parts: Vec<_> = [below, Some(own), above].into_iter().flatten().collect();
        self.check_room(parts.len() - 1)?;
        self.waiting.splice(at..=at, parts);
        Ok(())
    }

    /// Admits a number. All smaller numbers are over from here on, including numbers that never arrived.
    pub(crate) fn admit(&mut self, number: u64, key: &Key, until: Timestamp) {
        if !self.is_late(number, key) {
            self.last = Some(LastAdmitted { number, key: key.clone(), is_consumed: false });
            let over = self.waiting.partition_point(|range| range.to <= number);
            self.waiting.drain(..over);
            if let Some(first) = self.waiting.first_mut().filter(|first| first.from <= number) {
                first.from = number + 1;
            }
        }
        self.admissions += 1;
        self.admitted = Some(Admitted { key: key.clone(), until });
    }

    /// Marks a number as consumed. Returns true if that changes the table.
    pub(crate) fn mark_consumed(&mut self, number: u64, key: &Key) -> bool {
        let before = (self.last.as_ref().map(|last| last.is_consumed), self.admitted.is_some());
        if let Some(last) = self.last.as_mut().filter(|last| last.number == number && last.key == *key) {
            last.is_consumed = true;
        }
        self.admitted.take_if(|admitted| admitted.key == *key);
        before != (self.last.as_ref().map(|last| last.is_consumed), self.admitted.is_some())
    }

    /// Returns true if a larger number was admitted, or this number under another key.
    pub(crate) fn is_late(&self, number: u64, key: &Key) -> bool {
        self.last.as_ref().is_some_and(|last| last.number > number || last.number == number && last.key != *key)
    }

    /// Returns the predecessor of this number.
    pub(crate) fn precedence(&self, number: u64) -> Precedence {
        if self.is_passed(number) {
            return Precedence::Nothing;
        }
        let at = self.waiting.partition_point(|range| range.from < number);
        let below = &self.waiting[..at];
        match &self.last {
            _ if !below.is_empty() => Precedence::Expected(
                below.iter().filter_map(|range| range.wait_times).map(|wait_times| wait_times.last).max(),
            ),
            Some(last) if !last.is_consumed => Precedence::LastAdmitted(last.key.clone()),
            _ => Precedence::Nothing,
        }
    }

    /// Returns the deliveries of this number, if it had to wait.
    pub(crate) fn wait_times(&self, number: u64) -> Option<WaitTimes> {
        let at = self.waiting.partition_point(|range| range.to < number);
        self.waiting.get(at).filter(|range| range.from == number)?.wait_times
    }

    /// Returns true if this number or a larger one was admitted.
    fn is_passed(&self, number: u64) -> bool {
        self.last.as_ref().is_some_and(|last| last.number >= number)
    }

    fn check_room(&self, more: usize) -> Result<(), TableFull> {
        if self.waiting.len() + more > MAX_WAITING_RANGES { Err(TableFull) } else { Ok(()) }
    }
}

impl Admitted {
    /// Returns true if the call may be running, according to its record.
    pub(crate) fn may_run(&self, found: Option<&crate::State>, now: Timestamp) -> bool {
        match found {
            Some(crate::State::Consuming { until, .. }) => (*until).max(self.until) > now,
            Some(state) if state.kind() != StateKind::Vacant => false,
            _ => self.until > now,
        }
    }
}

/// Returns how long a table is kept after its last change: as long as the records of its calls, and while a call waits.
pub(crate) fn table_retention(retain: Duration, retain_failures: Duration, patience: Duration) -> Duration {
    retain.max(retain_failures).max(patience.saturating_mul(2))
}

#[cfg(test)]
#[path = "order_table_tests.rs"]
mod tests;
