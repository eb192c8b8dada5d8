//! What happened, in one order: what the store applied, what handlers did, what runs came to.
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use idempotent::{
    Claim, Clock, Completion, Disposition, Fencing, Fingerprint, Outcome, OwnerToken, Settled, StoreErrorKind, Verdict,
};
use idempotent_testkit::{Call, VirtualClock};

use crate::plan::Plan;

/// An event; those of the store in the order they were applied in.
#[derive(Clone, Debug)]
pub struct Event {
    /// µs by the store's clock.
    pub at: u64,
    /// The incarnation of a worker; 0 where there is none.
    pub worker: u32,
    pub what: What,
}

#[derive(Clone, Debug)]
pub enum What {
    Claim(Claimed),
    Renew {
        key: u128,
        owner: OwnerToken,
        /// The grant it is for, if its sender knows.
        number: Option<Fencing>,
        lease: Duration,
        answer: Settled,
    },
    Complete {
        key: u128,
        owner: OwnerToken,
        /// The grant it is for, if its sender knows.
        number: Option<Fencing>,
        done: Completion,
        answer: Settled,
    },
    Release {
        key: u128,
        owner: OwnerToken,
        /// The grant it is for, if its sender knows.
        number: Option<Fencing>,
        verdict: Verdict,
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
        fencing: Option<Fencing>,
        accepted: bool,
        believes: bool,
    },
    HandlerEnd {
        key: u128,
        fencing: Option<Fencing>,
        how: How,
    },
    /// An observer's terminal event.
    Ended {
        key: Option<u128>,
        fencing: Option<Fencing>,
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
    /// kill, pause, drain …
    Chaos(&'static str),
}

#[derive(Clone, Debug)]
pub struct Claimed {
    pub key: u128,
    pub owner: OwnerToken,
    pub lease: Duration,
    pub memory: Duration,
    pub max_attempts: u32,
    pub fingerprint: Option<Fingerprint>,
    pub answer: Claim,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum How {
    Ok,
    Failed,
    Panicked,
    Dropped,
}

impl What {
    pub fn key(&self) -> Option<u128> {
        match self {
            Self::Claim(claimed) => Some(claimed.key),
            Self::Renew { key, .. }
            | Self::Complete { key, .. }
            | Self::Release { key, .. }
            | Self::StoreError { key, .. }
            | Self::Effect { key, .. }
            | Self::HandlerEnd { key, .. }
            | Self::Delivered { key, .. } => Some(*key),
            Self::Ended { key, .. } => *key,
            Self::Chaos(_) => None,
        }
    }
}

/// Everything a checker may look at.
#[derive(Clone, Debug)]
pub struct History {
    pub plan: Plan,
    pub events: Vec<Event>,
    /// The fault store's log.
    pub calls: Vec<Call>,
    /// Deliveries that were never settled, and whether their run was still going.
    pub unsettled: Vec<String>,
    /// (deliveries, ended, told to the observer) of each incarnation that is idle.
    pub counts: BTreeMap<u32, (u64, u64, u64)>,
}

/// Where events are written down.
#[derive(Clone, Debug)]
pub struct Recorder {
    clock: VirtualClock,
    events: Arc<Mutex<Vec<Event>>>,
}

impl Recorder {
    pub fn new(clock: &VirtualClock) -> Self {
        Self { clock: clock.clone(), events: Arc::default() }
    }

    pub fn record(&self, worker: u32, what: What) {
        let at = self.clock.wall().0;
        self.events.lock().unwrap().push(Event { at, worker, what });
    }

    pub fn events(&self) -> Vec<Event> {
        self.events.lock().unwrap().clone()
    }
}

impl History {
    /// For people: one line an event, times in ms since the start.
    pub fn print(&self) -> String {
        let mut text = format!("{:#?}\n", self.plan);
        for Event { at, worker, what } in &self.events {
            let ms = Duration::from_micros(at - VirtualClock::START.0).as_secs_f64() * 1000.0;
            let key = what.key().map_or_else(String::new, |key| format!("{:04x}", key >> 112));
            writeln!(text, "{ms:>12.3} w{worker:<3} {key:4} {what:?}").unwrap();
        }
        for line in &self.unsettled {
            writeln!(text, "unsettled: {line}").unwrap();
        }
        text
    }
}
