//! The situations that occurred in simulations: a check of a situation that never occurs proves nothing.
use std::collections::BTreeMap;

use idempotent_core::{Claim, Settled};

use super::events::{Told, What};
use idempotent_testkit::history::check::Report;

/// The number of occurrences of each situation, correct or not.
#[derive(Clone, Debug, Default)]
pub struct Coverage(BTreeMap<String, u64>);

/// The situations that must occur.
const WANTED: &[&str] = &[
    "takeovers",
    "unknowns",
    "late completion refused",
    "late renewal refused",
    "grant to a run that is over",
    "lost request: claim",
    "lost reply: claim",
    "lost reply: renew",
    "lost reply: complete",
    "lost reply: release",
    "silence: claim",
    "silence: renew",
    "silence: complete",
    "silence: release",
    "refused: claim",
    "late: claim",
    "copy: claim",
    "copy: renew",
    "copy: complete",
    "copy: release",
    "release: Delete",
    "release: Vacate",
    "release: Refund",
    "release: MarkFailed",
    "release: MarkDead",
    "effect after the lease was lost",
    "effect refused",
    "forgotten",
    "purged",
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
    "chaos: store clock",
    "chaos: worker clock",
    "chaos: a turn to wait for",
];

impl Coverage {
    pub(super) fn of(told: &Told, report: &Report) -> Self {
        let mut coverage = Self::default();
        coverage.add(told);
        let counts = &report.counts;
        for (what, times) in [
            ("takeovers", counts.takeovers),
            ("unknowns", counts.unknowns),
            ("kills", counts.kills),
            ("grants", counts.grants),
            ("effects beyond the first", counts.repeated_effects),
        ] {
            *coverage.0.entry(what.to_owned()).or_default() += times;
        }
        coverage
    }

    fn count(&mut self, what: impl Into<String>) {
        *self.0.entry(what.into()).or_default() += 1;
    }

    fn add(&mut self, told: &Told) {
        let mut owners = BTreeMap::new();
        for event in &told.events {
            match &event.what {
                What::Claim(claimed) => {
                    let Claim::Acquired(grant) = &claimed.answer else { continue };
                    let before = owners.insert((claimed.key, claimed.owner.0), grant.fencing);
                    if before.is_some_and(|old| old != grant.fencing) {
                        self.count("grant to a run that is over");
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
                What::Fault { fault, verb } => self.count(format!("{fault}: {verb}")),
                What::Together => self.count("batch"),
                What::Forgotten { .. } => self.count("forgotten"),
                What::Purged { .. } => self.count("purged"),
                _ => {}
            }
        }
    }

    pub(super) fn merge(&mut self, other: Self) {
        for (what, times) in other.0 {
            *self.0.entry(what).or_default() += times;
        }
    }

    /// Returns each situation by name, with the number of its occurrences.
    pub fn iter(&self) -> impl Iterator<Item = (&str, u64)> {
        self.0.iter().map(|(what, times)| (what.as_str(), *times))
    }

    /// Returns the number of occurrences of a situation.
    #[must_use]
    pub fn times(&self, what: &str) -> u64 {
        self.0.get(what).copied().unwrap_or_default()
    }

    /// Returns the situations that a conclusive campaign needs and that never occurred.
    #[must_use]
    pub fn missing(&self) -> Vec<&'static str> {
        WANTED.iter().filter(|what| self.times(what) == 0).copied().collect()
    }
}
