//! What the seeds have seen: a check of what never happens proves nothing.
use std::collections::BTreeMap;

use idempotent::{Claim, Settled, StoreErrorKind};
use idempotent_testkit::Answer;

use crate::history::{History, What};

#[derive(Debug, Default)]
pub struct Coverage(BTreeMap<String, u64>);

/// What must have happened, each more than once.
const WANTED: &[&str] = &[
    "takeover",
    "late completion refused",
    "late renewal refused",
    "grant to a run that is over",
    "lost reply: Claim",
    "lost reply: Renew",
    "lost reply: Complete",
    "lost reply: Release",
    "hung: Claim",
    "hung: Renew",
    "hung: Complete",
    "hung: Release",
    "release: Delete",
    "release: Vacate",
    "release: Refund",
    "release: Fail",
    "release: Bury",
    "effect after the lease was lost",
    "effect refused",
    "ended: ran",
    "ended: replayed",
    "ended: released",
    "ended: in_flight",
    "ended: draining",
    "ended: cancelled",
    "ended: abandoned",
    "ended: lease_lost",
    "ended: unrecorded",
    "ended: store_down",
    "ended: failed",
    "ended: dead",
    "ended: mismatch",
    "ended: unprotected",
    "handler: Panicked",
    "handler: Dropped",
    "chaos: kill",
    "chaos: drain",
    "chaos: drop a run",
    "chaos: stop",
    "chaos: jump",
    "chaos: store down",
];

impl Coverage {
    fn count(&mut self, what: impl Into<String>) {
        *self.0.entry(what.into()).or_default() += 1;
    }

    pub fn add(&mut self, history: &History) {
        let mut owners = BTreeMap::new();
        for event in &history.events {
            match &event.what {
                What::Claim(claimed) => {
                    let Claim::Acquired(grant) = &claimed.answer else { continue };
                    if owners
                        .insert((claimed.key, claimed.owner.0), grant.fencing)
                        .is_some_and(|old| old != grant.fencing)
                    {
                        self.count("grant to a run that is over");
                    }
                    if grant.taken_over.is_some() {
                        self.count("takeover");
                    }
                }
                What::Complete { answer: Settled::Lost { .. }, .. } => self.count("late completion refused"),
                What::Renew { answer: Settled::Lost { .. }, .. } => self.count("late renewal refused"),
                What::Release { verdict, answer: Settled::Done, .. } => self.count(format!("release: {verdict:?}")),
                What::Effect { accepted: false, .. } => self.count("effect refused"),
                What::Effect { fencing: Some(_), believes: false, .. } => self.count("effect after the lease was lost"),
                What::HandlerEnd { how, .. } => self.count(format!("handler: {how:?}")),
                What::Ended { outcome, .. } => self.count(format!("ended: {}", outcome.name())),
                What::Chaos(what) => self.count(format!("chaos: {what}")),
                _ => {}
            }
        }
        for call in &history.calls {
            let applied = !matches!(call.applied, None | Some(Answer::Error(_)));
            match call.answer {
                Some(Answer::Error(StoreErrorKind::Ambiguous)) if applied => {
                    self.count(format!("lost reply: {:?}", call.verb));
                }
                None if applied => self.count(format!("hung: {:?}", call.verb)),
                _ => {}
            }
        }
    }

    pub fn merge(&mut self, other: Self) {
        for (what, times) in other.0 {
            *self.0.entry(what).or_default() += times;
        }
    }

    /// What is wanted and never happened.
    pub fn missing(&self) -> Vec<&'static str> {
        WANTED.iter().filter(|what| !self.0.contains_key(**what)).copied().collect()
    }
}
