//! The order table of one stream: its numbers that are expected, and the largest one that was let in.
//!
//! A line is one value, read and replaced as a whole, so that every step on it is a pure function here and the same in each
//! store. It stays short: what was let in leaves nothing behind but the largest number, and numbers that stand side by
//! side and were not seen yet are one stretch.
use std::time::Duration;

use crate::{Key, Micros, StateKind};

/// The most stretches of numbers that a stream may have waiting: numbers that were seen are one each, those that are
/// expected are one where they stand side by side.
pub const MAX_LINE: usize = 4_096;

/// The numbers of a stream.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct OrderTable {
    /// How many were let in. Grows with each, so that a line is never again what it was.
    pub(crate) admissions: u64,
    /// The largest number that was let in: all those below are over.
    pub(crate) last: Option<LastAdmitted>,
    /// Whoever was let in last, unless that is known to be over.
    pub(crate) admitted: Option<Admitted>,
    /// Those above the last, ascending.
    pub(crate) waiting: Vec<NumberRange>,
}

/// The largest number that was let in.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct LastAdmitted {
    pub(crate) number: u64,
    pub(crate) key: Key,
    /// It is consumed, whatever has become of its record since.
    pub(crate) is_consumed: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Admitted {
    pub(crate) key: Key,
    /// Until then it may run though its record does not say so: it is about to claim, or does so in a transaction.
    pub(crate) until: Micros,
}

/// Numbers from one to another, both of them in it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct NumberRange {
    pub(crate) from: u64,
    pub(crate) to: u64,
    /// Only of a single number.
    pub(crate) wait_times: Option<WaitTimes>,
}

/// When a number's message was delivered.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct WaitTimes {
    pub(crate) first: Micros,
    pub(crate) last: Micros,
}

/// What a number comes after.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Precedence {
    /// Nothing that is not over.
    Nothing,
    /// The last that was let in, which is not known to be over.
    LastAdmitted(Key),
    /// Some that were not let in yet, and when a message of any of them was delivered last: whoever is let in before them
    /// makes all of them late.
    Expected(Option<Micros>),
}

/// There is no room for more.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct TableFull;

impl OrderTable {
    /// Notes a number that will come. Says whether that can still be: a larger one may have been let in.
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

    /// Notes that a number's message was delivered and has to wait; `anew`: its time counts from now on.
    pub(crate) fn record_wait(&mut self, number: u64, now: Micros, restart: bool) -> Result<(), TableFull> {
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

    /// Lets a number in. From here on all smaller ones are over, also those that never came.
    pub(crate) fn admit(&mut self, number: u64, key: &Key, until: Micros) {
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

    /// Notes that a number is consumed. Says whether that changes anything.
    pub(crate) fn mark_consumed(&mut self, number: u64, key: &Key) -> bool {
        let before = (self.last.as_ref().map(|last| last.is_consumed), self.admitted.is_some());
        if let Some(last) = self.last.as_mut().filter(|last| last.number == number && last.key == *key) {
            last.is_consumed = true;
        }
        self.admitted.take_if(|admitted| admitted.key == *key);
        before != (self.last.as_ref().map(|last| last.is_consumed), self.admitted.is_some())
    }

    /// Whether a larger number was let in, or this one under another key.
    pub(crate) fn is_late(&self, number: u64, key: &Key) -> bool {
        self.last.as_ref().is_some_and(|last| last.number > number || last.number == number && last.key != *key)
    }

    /// What this number comes after.
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

    /// When this number's message was delivered, if it had to wait.
    pub(crate) fn wait_times(&self, number: u64) -> Option<WaitTimes> {
        let at = self.waiting.partition_point(|range| range.to < number);
        self.waiting.get(at).filter(|range| range.from == number)?.wait_times
    }

    /// Whether it was let in, or a larger one was.
    fn is_passed(&self, number: u64) -> bool {
        self.last.as_ref().is_some_and(|last| last.number >= number)
    }

    fn check_room(&self, more: usize) -> Result<(), TableFull> {
        if self.waiting.len() + more > MAX_LINE { Err(TableFull) } else { Ok(()) }
    }
}

impl Admitted {
    /// Whether it may be running, by what its record says.
    pub(crate) fn may_run(&self, found: Option<&crate::State>, now: Micros) -> bool {
        match found {
            Some(crate::State::Consuming { until, .. }) => (*until).max(self.until) > now,
            Some(state) if state.kind() != StateKind::Vacant => false,
            _ => self.until > now,
        }
    }
}

/// How long a stream is remembered after its last step: as long as its calls are, and while one of them waits.
pub(crate) fn table_retention(retain: Duration, memory: Duration, patience: Duration) -> Duration {
    retain.max(memory).max(patience.saturating_mul(2))
}

#[cfg(test)]
#[path = "order_table_tests.rs"]
mod tests;
