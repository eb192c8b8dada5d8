//! The writes of the last moments, which a replica may not have.
use std::collections::VecDeque;

use idempotent_core::Record;

use super::packed::{MemberPlace, RollUndo};

/// A write, with all that is needed to undo it.
#[derive(Debug)]
pub(super) enum Change {
    Record { hash: u128, before: Option<Record> },
    Member { hash: u128, member: MemberPlace },
    Roll(RollUndo),
}

/// A write with its time, slot and master.
type Noted = (u64, u32, usize, Change);

/// The writes that are younger than the replication lag.
#[derive(Debug)]
pub(super) struct Journal {
    /// The lag, or `None` if no replica is ever promoted.
    lag: Option<u64>,
    writes: VecDeque<Noted>,
}

impl Journal {
    pub(super) fn new(lag: Option<u64>) -> Self {
        Self { lag, writes: VecDeque::new() }
    }

    pub(super) fn note(&mut self, now: u64, slot: u32, master: usize, change: impl FnOnce() -> Change) {
        let Some(lag) = self.lag else { return };
        while self.writes.front().is_some_and(|(at, ..)| at + lag < now) {
            self.writes.pop_front();
        }
        self.writes.push_back((now, slot, master, change()));
    }

    /// Removes the writes that the replica of a master lacks, and returns them with time and slot, latest first.
    pub(super) fn lost(&mut self, master: usize, now: u64) -> Vec<(u64, u32, Change)> {
        let lag = self.lag.unwrap_or_default();
        let all = std::mem::take(&mut self.writes);
        let lost = all.into_iter().filter(|(at, _, of, _)| *of == master && at + lag >= now);
        let mut lost: Vec<_> = lost.map(|(at, slot, _, change)| (at, slot, change)).collect();
        lost.reverse();
        lost
    }
}
