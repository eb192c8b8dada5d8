//! What happened, in one order: what the store applied, what handlers did, what runs came to.
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use idempotent_core::{
    Claim, Clock, Completion, Disposition, FencingToken, Fingerprint, Key, Outcome, OwnerToken, ReleaseKind, Settled,
    StoreErrorKind,
};

use super::plan::Plan;
use super::process::lock;
use crate::VirtualClock;
use crate::history::{Kind, Line, Token};

/// An event; those of the store in the order they were applied in.
#[derive(Clone, Debug)]
pub(super) struct Event {
    /// µs by the store's clock.
    pub(super) at: u64,
    /// The incarnation of a worker; 0 where there is none.
    pub(super) worker: u32,
    pub(super) what: What,
}

#[derive(Clone, Debug)]
pub(super) enum What {
    Claim(Claimed),
    Renew {
        key: u128,
        owner: OwnerToken,
        /// The grant it is for, if its sender knows.
        number: Option<FencingToken>,
        lease: Duration,
        answer: Settled,
    },
    Complete {
        key: u128,
        owner: OwnerToken,
        /// The grant it is for, if its sender knows.
        number: Option<FencingToken>,
        done: Completion,
        answer: Settled,
    },
    Release {
        key: u128,
        owner: OwnerToken,
        /// The grant it is for, if its sender knows.
        number: Option<FencingToken>,
        verdict: ReleaseKind,
        delay: Duration,
        memory: Duration,
        answer: Settled,
    },
    /// The store itself failed; what was asked may have been done.
    StoreError {
        key: u128,
        kind: StoreErrorKind,
    },
    /// A handler touched the resource; `fencing` is none in an unprotected run.
    Effect {
        key: u128,
        fencing: Option<FencingToken>,
        accepted: bool,
        believes: bool,
    },
    HandlerEnd {
        key: u128,
        fencing: Option<FencingToken>,
        how: How,
    },
    /// An observer's terminal event.
    Ended {
        key: Option<u128>,
        fencing: Option<FencingToken>,
        outcome: Outcome,
    },
    /// A broker's last word on a delivery; `payload` is what was sent, `value` what the caller got.
    Delivered {
        delivery: u64,
        key: u128,
        payload: u64,
        outcome: Option<Outcome>,
        disposition: Disposition,
        value: Option<String>,
    },
    /// An operator, without force, by the number he saw.
    Forgotten {
        key: u128,
        seen: FencingToken,
    },
    /// A janitor.
    Purged {
        failed: bool,
    },
    /// Something that the network did to a call.
    Fault {
        fault: &'static str,
        verb: &'static str,
    },
    /// Several requests came in one call.
    Together,
    /// kill, pause, drain …
    Chaos(&'static str),
}

#[derive(Clone, Debug)]
pub(super) struct Claimed {
    pub(super) key: u128,
    pub(super) owner: OwnerToken,
    pub(super) lease: Duration,
    pub(super) memory: Duration,
    pub(super) max_attempts: u32,
    /// Nobody is to take over.
    pub(super) parks: bool,
    pub(super) fingerprint: Option<Fingerprint>,
    pub(super) answer: Claim,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum How {
    Well,
    Failed,
    Panicked,
    Dropped,
}

impl What {
    pub(super) fn key(&self) -> Option<u128> {
        match self {
            Self::Claim(claimed) => Some(claimed.key),
            Self::Renew { key, .. }
            | Self::Complete { key, .. }
            | Self::Release { key, .. }
            | Self::StoreError { key, .. }
            | Self::Effect { key, .. }
            | Self::HandlerEnd { key, .. }
            | Self::Forgotten { key, .. }
            | Self::Delivered { key, .. } => Some(*key),
            Self::Ended { key, .. } => *key,
            Self::Purged { .. } | Self::Fault { .. } | Self::Together | Self::Chaos(_) => None,
        }
    }
}

/// What happened in one world.
#[derive(Clone, Debug)]
pub(super) struct Told {
    pub(super) plan: Plan,
    pub(super) events: Vec<Event>,
    /// Deliveries and drains that have not ended.
    pub(super) unsettled: Vec<String>,
    /// (deliveries, ended, told to the observer) of each incarnation.
    pub(super) counts: BTreeMap<u32, (u64, u64, u64)>,
    /// Owner tokens of clients that are not our executor.
    pub(super) scripted: BTreeSet<u128>,
}

/// Where events are written down: what the store applied and what came of it, and the history for everybody.
#[derive(Clone, Debug)]
pub(super) struct Recorder {
    clock: VirtualClock,
    written: Arc<Mutex<Written>>,
}

#[derive(Debug, Default)]
struct Written {
    events: Vec<Event>,
    lines: Vec<Line>,
    last: u64,
    /// Whose grant it is, by key as told in the history, and number.
    owners: BTreeMap<(String, u64), Token>,
}

impl Recorder {
    pub(super) fn new(clock: &VirtualClock) -> Self {
        Self { clock: clock.clone(), written: Arc::default() }
    }

    /// No two times are the same: what one thread did in one instant it did one after the other.
    pub(super) fn now(&self) -> u64 {
        let elapsed = u64::try_from(self.clock.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let mut written = lock(&self.written);
        written.last = elapsed.max(written.last + 1);
        written.last
    }

    pub(super) fn record(&self, worker: u32, what: What) {
        let at = self.clock.wall().0;
        lock(&self.written).events.push(Event { at, worker, what });
    }

    /// A line of the history, from a blank one of now.
    pub(super) fn line(&self, worker: u32, fill: impl FnOnce(Line) -> Option<Line>) {
        // Kind and owner are what `fill` makes of it.
        let Some(line) = fill(Line::new(self.now(), worker, Kind::Produced)) else { return };
        let mut written = lock(&self.written);
        if let (Kind::ClaimWon, Some(key), Some(fence), Some(token)) = (line.event, &line.key, line.fence, line.token) {
            written.owners.insert((key.clone(), fence), token);
        }
        written.lines.push(line);
    }

    /// An event of a key at this instant.
    pub(super) fn tell(&self, worker: u32, event: Kind, key: &Key) {
        self.line(worker, |line| Some(Line { event, key: Some(key.as_str().to_owned()), ..line }));
    }

    pub(super) fn owner(&self, key: &Key, fencing: FencingToken) -> Option<Token> {
        lock(&self.written).owners.get(&(key.as_str().to_owned(), fencing.0)).copied()
    }

    pub(super) fn events(&self) -> Vec<Event> {
        lock(&self.written).events.clone()
    }

    pub(super) fn lines(&self) -> Vec<Line> {
        lock(&self.written).lines.clone()
    }
}

impl Told {
    /// For people: one line an event, times in ms since the start.
    pub(super) fn print(&self) -> String {
        let mut text = String::new();
        for Event { at, worker, what } in &self.events {
            let ms = Duration::from_micros(at.saturating_sub(VirtualClock::START.0)).as_secs_f64() * 1000.0;
            let key = what.key().map_or_else(String::new, |key| format!("{:04x}", key >> 112));
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{ms:>12.3} w{worker:<3} {key:4} {what:?}");
        }
        for line in &self.unsettled {
            let _ = writeln!(text, "unsettled: {line}");
        }
        text
    }
}
