//! A ledger of the store's answers by key: not the stored state, but the state that the store has reported.
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use idempotent_core::{Claim, FencingToken, Fingerprint, Grant, Outcome, OwnerToken, ReleaseKind, Settled};

use super::events::{Claimed, Event, Told, What};
use idempotent_testkit::VirtualClock;

#[derive(Clone, Debug)]
pub(super) struct Granted {
    pub(super) owner: OwnerToken,
    pub(super) fencing: FencingToken,
    pub(super) attempt: u32,
    pub(super) at: u64,
    pub(super) fingerprint: Option<Fingerprint>,
    /// The expiry of the lease, according to the answered renewals.
    pub(super) until: u64,
    /// The retention after the expiry of the lease.
    pub(super) retention: Duration,
}

/// The last reported state of a key.
#[derive(Clone, Debug, Default)]
pub(super) enum Phase {
    /// Never claimed, or released.
    #[default]
    Free,
    Held,
    Consumed {
        value: Option<Arc<[u8]>>,
        until: u64,
    },
    Failed {
        until: u64,
    },
    Dead {
        until: u64,
    },
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Vacant {
    pub(super) not_before: u64,
    pub(super) attempt: u32,
    until: u64,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Standing {
    pub(super) phase: Phase,
    /// Every grant so far. The last one belongs to the phase.
    pub(super) grants: Vec<Granted>,
    /// First completions: grant and value.
    pub(super) completed: Vec<(FencingToken, Option<Arc<[u8]>>)>,
    /// Applied releases: grant and kind.
    pub(super) released: Vec<(FencingToken, ReleaseKind)>,
    /// The retained facts of a vacant key.
    pub(super) vacant: Option<Vacant>,
    /// The number of claims answered as consumed.
    pub(super) told_consumed: u64,
    pub(super) told_failed: u64,
    pub(super) told_dead: Vec<FencingToken>,
    pub(super) told_mismatch: u64,
}

/// Returns the sum of `at` and `by`, in the arithmetic of a record.
pub(super) fn later(at: u64, by: Duration) -> u64 {
    at.saturating_add(u64::try_from(by.as_nanos().div_ceil(1_000)).unwrap_or(u64::MAX))
}

impl Standing {
    pub(super) fn last(&self) -> Option<&Granted> {
        self.grants.last()
    }

    /// Returns the owner, in its lease or late, while its record is retained.
    pub(super) fn holder(&self, at: u64) -> Option<&Granted> {
        match self.phase {
            Phase::Held => self.last().filter(|grant| later(grant.until, grant.retention) > at),
            _ => None,
        }
    }

    /// Returns the owner that is in its lease.
    pub(super) fn live_holder(&self, at: u64) -> Option<&Granted> {
        self.holder(at).filter(|grant| grant.until > at)
    }

    /// Returns the vacant record, while it is retained.
    pub(super) fn vacant(&self, at: u64) -> Option<Vacant> {
        self.vacant.filter(|vacant| vacant.until > at)
    }

    /// Returns the result, within the retention.
    pub(super) fn consumed(&self, at: u64) -> Option<&Option<Arc<[u8]>>> {
        match &self.phase {
            Phase::Consumed { value, until } if *until > at => Some(value),
            _ => None,
        }
    }

    /// Returns whether this answer to a claim repeats the grant in force.
    pub(super) fn repeats(&self, at: u64, owner: OwnerToken) -> bool {
        self.holder(at).is_some_and(|grant| grant.owner == owner)
    }

    /// Returns whether the answers of the store justify this outcome of the grant or of the key.
    pub(super) fn knows(&self, fencing: Option<FencingToken>, outcome: &Outcome) -> bool {
        let released = |verdict| fencing.is_some_and(|fencing| self.released.contains(&(fencing, verdict)));
        match outcome {
            Outcome::Ran => self.completed.iter().any(|(by, _)| Some(*by) == fencing),
            Outcome::Failed => self.told_failed > 0 || released(ReleaseKind::MarkFailed),
            Outcome::Dead { fencing: dead } => self.told_dead.contains(dead) || released(ReleaseKind::MarkDead),
            Outcome::Mismatch => self.told_mismatch > 0,
            _ => true,
        }
    }

    fn claimed(&mut self, at: u64, claimed: &Claimed) {
        match &claimed.answer {
            Claim::Acquired(_) if self.repeats(at, claimed.owner) => {}
            Claim::Acquired(Grant { fencing, attempt, .. }) => {
                let Claimed { owner, fingerprint, retention, lease, .. } = *claimed;
                let until = later(at, lease);
                self.grants.push(Granted {
                    owner,
                    fencing: *fencing,
                    attempt: *attempt,
                    at,
                    fingerprint,
                    until,
                    retention,
                });
                self.phase = Phase::Held;
                self.vacant = None;
            }
            Claim::Consumed(_) => self.told_consumed += 1,
            Claim::Failed { .. } => self.told_failed += 1,
            Claim::Mismatch => self.told_mismatch += 1,
            Claim::Dead(dead) => {
                self.told_dead.push(dead.fencing);
                let stays = match self.phase {
                    Phase::Dead { until } => until > at,
                    _ => self.live_holder(at).is_some() || self.consumed(at).is_some(),
                };
                if !stays {
                    self.phase = Phase::Dead { until: later(at, claimed.retention) };
                    self.vacant = None;
                }
            }
            _ => {}
        }
    }

    fn apply(&mut self, at: u64, what: &What) {
        let holds = |owner: OwnerToken| self.holder(at).is_some_and(|grant| grant.owner == owner);
        match what {
            What::Claim(claimed) => self.claimed(at, claimed),
            What::Renew { owner, lease, answer: Settled::Done, .. } if holds(*owner) => {
                if let Some(grant) = self.grants.last_mut() {
                    grant.until = grant.until.max(later(at, *lease));
                }
            }
            What::Complete { done, answer: Settled::Done, .. } if self.consumed(at).is_none() => {
                let fencing = self.last().map_or(FencingToken(0), |grant| grant.fencing);
                self.completed.push((fencing, done.value.clone()));
                self.phase = Phase::Consumed { value: done.value.clone(), until: later(at, done.retain) };
            }
            What::Release { verdict, delay, retention, answer: Settled::Done, .. } => {
                let until = later(at, *retention);
                let attempt = self.last().map_or(0, |grant| grant.attempt);
                let vacant = |attempt| {
                    let not_before = later(at, *delay);
                    Some(Vacant { not_before, attempt, until: later(not_before, *retention) })
                };
                self.vacant = match verdict {
                    ReleaseKind::Vacate => vacant(attempt),
                    ReleaseKind::Refund => vacant(attempt.saturating_sub(1)),
                    ReleaseKind::Delete | ReleaseKind::MarkFailed | ReleaseKind::MarkDead => None,
                };
                let fencing = self.last().map_or(FencingToken(0), |grant| grant.fencing);
                self.released.push((fencing, *verdict));
                self.phase = match verdict {
                    ReleaseKind::Delete | ReleaseKind::Vacate | ReleaseKind::Refund => Phase::Free,
                    ReleaseKind::MarkFailed => Phase::Failed { until },
                    ReleaseKind::MarkDead => Phase::Dead { until },
                };
            }
            What::Forgotten { seen, .. } if self.last().is_some_and(|grant| grant.fencing == *seen) => {
                self.phase = Phase::Free;
                self.vacant = None;
            }
            _ => {}
        }
    }
}

/// Walks through a history. `check` gets each event that has a key, its index, and the state of its key before it.
pub(super) fn walk(
    history: &Told,
    mut check: impl FnMut(usize, &Standing, &Event) -> Result<(), String>,
) -> Result<BTreeMap<u128, Standing>, String> {
    let mut keys: BTreeMap<u128, Standing> = BTreeMap::new();
    for (place, event) in history.events.iter().enumerate() {
        let Some(key) = event.what.key() else { continue };
        let standing = keys.entry(key).or_default();
        check(place, standing, event).map_err(|error| {
            let ms = event.at.saturating_sub(VirtualClock::START.0) / 1_000;
            format!("{error}; event {place} at {ms} ms, key {:04x}: {:?}", key >> 112, event.what)
        })?;
        standing.apply(event.at, &event.what);
    }
    Ok(keys)
}
