//! Events in one order: applied store calls, effects of handlers, and outcomes of runs.
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use idempotent_core::{
    Claim, Clock, Completion, Disposition, Event as RunEvent, FencingToken, Fingerprint, Key, Outcome, OwnerToken,
    ReleaseKind, Settled, StoreErrorKind,
};

use super::plan::Plan;
use super::process::lock;
use idempotent_testkit::VirtualClock;
use idempotent_testkit::history::{Kind, Line, Token};

/// An event. Events of the store are in the order of application.
#[derive(Clone, Debug)]
pub(super) struct Event {
    /// The time in µs by the store's clock.
    pub(super) at: u64,
    /// The incarnation of a worker; 0 if there is none.
    pub(super) worker: u32,
    pub(super) what: What,
}

#[derive(Clone, Debug)]
pub(super) enum What {
    Claim(Claimed),
    Renew {
        key: u128,
        owner: OwnerToken,
        /// The fencing token of the grant, if the sender knows it.
        number: Option<FencingToken>,
        lease: Duration,
        answer: Settled,
    },
    Complete {
        key: u128,
        owner: OwnerToken,
        /// The fencing token of the grant, if the sender knows it.
        number: Option<FencingToken>,
        done: Completion,
        answer: Settled,
    },
    Release {
        key: u128,
        owner: OwnerToken,
        /// The fencing token of the grant, if the sender knows it.
        number: Option<FencingToken>,
        verdict: ReleaseKind,
        delay: Duration,
        retention: Duration,
        answer: Settled,
    },
    /// The store failed. The request may have been applied.
    StoreError {
        key: u128,
        kind: StoreErrorKind,
    },
    /// A handler wrote to the resource. `fencing` is `None` in an unprotected run.
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
    /// The terminal event of an observer.
    Ended {
        key: Option<u128>,
        fencing: Option<FencingToken>,
        outcome: Outcome,
    },
    /// The settlement of a delivery by the broker. `payload` is the sent payload, and `value` is the caller's result.
    Delivered {
        delivery: u64,
        key: u128,
        payload: u64,
        outcome: Option<Outcome>,
        disposition: Disposition,
        value: Option<String>,
    },
    /// An operator forgot a record without force, by the fencing token that was read.
    Forgotten {
        key: u128,
        seen: FencingToken,
    },
    /// A purge ran.
    Purged {
        failed: bool,
    },
    /// The network injected a fault into a call.
    Fault {
        fault: &'static str,
        verb: &'static str,
    },
    /// Several requests were one call.
    Together,
    /// An action such as kill, pause or drain.
    Chaos(&'static str),
}

#[derive(Clone, Debug)]
pub(super) struct Claimed {
    pub(super) key: u128,
    pub(super) owner: OwnerToken,
    pub(super) lease: Duration,
    pub(super) retention: Duration,
    pub(super) max_attempts: u32,
    /// True if a takeover is forbidden.
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

/// The events of one simulation.
#[derive(Clone, Debug)]
pub(super) struct Told {
    pub(super) plan: Plan,
    pub(super) events: Vec<Event>,
    /// Deliveries and drains that have not ended.
    pub(super) unsettled: Vec<String>,
    /// Counts of each incarnation: deliveries, ended runs, and runs reported to the observer.
    pub(super) counts: BTreeMap<u32, (u64, u64, u64)>,
    /// Owner tokens of clients other than the executor.
    pub(super) scripted: BTreeSet<u128>,
}

/// A recorder of events and of the history.
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
    /// The owner tokens of grants, by key as in the history, and fencing token.
    owners: BTreeMap<(String, u64), Token>,
}

impl Recorder {
    pub(super) fn new(clock: &VirtualClock) -> Self {
        Self { clock: clock.clone(), written: Arc::default() }
    }

    /// Returns a time that differs from all earlier ones: one thread performs the actions of an instant one after the
    /// other.
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

    /// Writes a line of the history. `fill` completes a line with the current time.
    pub(super) fn line(&self, worker: u32, fill: impl FnOnce(Line) -> Option<Line>) {
        // `fill` sets event and owner.
        let Some(line) = fill(Line::new(self.now(), worker, Kind::Produced)) else { return };
        let mut written = lock(&self.written);
        if let (Kind::ClaimWon, Some(key), Some(fence), Some(token)) = (line.event, &line.key, line.fence, line.token) {
            written.owners.insert((key.clone(), fence), token);
        }
        written.lines.push(line);
    }

    /// Writes an event of a key at this instant.
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
    /// Returns the events as text, one in each line, with times in ms since the start.
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

/// An observer that records terminal events.
#[derive(Clone, Debug)]
pub(super) struct Ear {
    pub(super) recorder: Recorder,
    pub(super) worker: u32,
    pub(super) told: Arc<AtomicU64>,
}

impl idempotent_core::Observer for Ear {
    fn on(&self, run: &idempotent_core::RunInfo<'_>, event: &RunEvent<'_>) {
        if let RunEvent::Ended { outcome, .. } = event {
            self.told.fetch_add(1, Ordering::SeqCst);
            let key = run.key.map(|key| super::lookalike::Disguise::new().of(key).hash());
            let (fencing, outcome) = (run.fencing, (*outcome).clone());
            self.recorder.record(self.worker, What::Ended { key, fencing, outcome });
        }
    }
}
