//! Every decision a store takes, as a pure function of (record, request, now): no clock, no I/O.
//!
//! The memory store, [`Cas`](crate::store::Cas) and the test kit use these functions; a store that decides in
//! SQL or in a script mirrors them and is held against them by the conformance kit.
use std::sync::Arc;
use std::time::Duration;

use crate::{
    Claim, ClaimRequest, Completion, Consumed, Dead, Fencing, Grant, Held, InFlight, Micros, OnExpiry, OwnerToken,
    Record, Release, Settled, State, StateKind, StepRecord, Verdict,
};

/// What is to be done with the record.
#[derive(Clone, Debug, PartialEq)]
pub enum Write {
    /// Nothing.
    Keep,
    /// Write this.
    Put(Record),
    /// Remove it.
    Delete,
}

/// The error kept for a key whose every owner let its lease run out: the process died, or hung.
pub const CRASHED: &str = "crashed: the last run let its lease run out";
/// The error kept for a key that was parked instead of being taken over.
pub const PARKED: &str = "parked: the last run let its lease run out, and nobody may take over";

/// A record past its `expires_at` is not there, whatever it says.
#[must_use]
pub fn live(found: Option<&Record>, now: Micros) -> Option<&Record> {
    found.filter(|record| record.expires_at > now)
}

/// Claims the key, or says why not. State is judged before the fingerprint, and the fingerprint only where a
/// run or its result stands: a vacant or expired record takes the new one.
#[must_use]
pub fn claim(found: Option<&Record>, request: &ClaimRequest, now: Micros) -> (Claim, Write) {
    let Some(record) = live(found, now) else { return grant(found, None, request, now, None) };
    let exhausted = request.max_attempts > 0 && record.attempt >= request.max_attempts;
    let answer = match &record.state {
        // The answer to this very claim got lost: say it again, count nothing.
        State::Consuming { owner, taken_over, .. } if *owner == request.owner => Claim::Acquired(Grant {
            fencing: record.fencing,
            attempt: record.attempt,
            lease: request.lease,
            taken_over: *taken_over,
        }),
        State::Consuming { until, .. } if *until <= now => {
            return match request.on_expiry {
                OnExpiry::Park => bury(record, &Arc::from(PARKED), request.memory, now),
                OnExpiry::Takeover if exhausted => bury(record, &Arc::from(CRASHED), request.memory, now),
                OnExpiry::Takeover => grant(found, Some(record), request, now, Some(record.fencing)),
            };
        }
        State::Vacant { not_before, .. } if *not_before > now => Claim::Delayed { rest: *not_before - now },
        State::Vacant { error, .. } if exhausted => return bury(record, error, request.memory, now),
        State::Vacant { taken_over, .. } => return grant(found, Some(record), request, now, *taken_over),
        State::Consuming { .. } | State::Consumed { .. } | State::Failed { .. } | State::Dead { .. }
            if differs(record, request) =>
        {
            Claim::Mismatch
        }
        State::Consuming { until, .. } => Claim::InFlight(InFlight::Leased { rest: *until - now }),
        State::Consumed { value, .. } => Claim::Consumed(Consumed { fencing: record.fencing, value: value.clone() }),
        State::Failed { error } => Claim::Failed { error: error.clone() },
        State::Dead { error } => Claim::Dead(dead(record, error)),
    };
    (answer, Write::Keep)
}

/// Never shortens a lease. A late owner may renew as long as nobody took over.
#[must_use]
pub fn renew(found: Option<&Record>, held: &Held, lease: Duration, now: Micros) -> (Settled, Write) {
    owned(found, held, now, |record, until, taken_over| {
        let later = until.max(now + lease);
        // The memory after the lease keeps its length.
        let expires_at = later + (record.expires_at - until);
        let state = State::Consuming { owner: held.owner, until: later, taken_over };
        // Nor does the last write go back with a clock that was set back: the lease would look longer than any may be.
        Write::Put(Record { state, expires_at, updated_at: now.max(record.updated_at), ..record.clone() })
    })
}

/// Consuming becomes consumed. Said twice by its owner, meant once: the first result stands. Where the owner's token was
/// [not kept](OwnerToken::NOT_KEPT), its grant's number is what tells it: a request without one is not its owner's.
#[must_use]
pub fn complete(found: Option<&Record>, held: &Held, done: &Completion, now: Micros) -> (Settled, Write) {
    if let Some(Record { fencing, state: State::Consumed { owner, .. }, .. }) = live(found, now)
        && completed(held, *owner, *fencing)
    {
        return (Settled::Done, Write::Keep);
    }
    owned(found, held, now, |record, _, _| {
        let state = State::Consumed { owner: held.owner, value: done.value.clone() };
        let expires_at = now + done.retain;
        Write::Put(Record { state, expires_at, updated_at: now, display: None, ..record.clone() })
    })
}

/// Ends an attempt that did not succeed, as its verdict says.
#[must_use]
pub fn release(found: Option<&Record>, held: &Held, release: &Release, now: Micros) -> (Settled, Write) {
    owned(found, held, now, |record, _, taken_over| {
        let error = || release.error.clone();
        let kept = |state, expires_at| Write::Put(Record { state, expires_at, updated_at: now, ..record.clone() });
        let vacant = |attempt, taken_over| {
            let not_before = now + release.delay;
            let state = State::Vacant { not_before, error: error(), taken_over };
            let expires_at = not_before + release.memory;
            Write::Put(Record { state, attempt, expires_at, updated_at: now, display: None, ..record.clone() })
        };
        match release.verdict {
            Verdict::Delete => delete(record, error(), now),
            Verdict::Vacate => vacant(record.attempt, None),
            Verdict::Refund if record.attempt <= 1 && taken_over.is_none() && release.delay.is_zero() => {
                delete(record, error(), now)
            }
            // It never ran: what it took over is still to be known.
            Verdict::Refund => vacant(record.attempt.saturating_sub(1), taken_over),
            Verdict::Fail => kept(State::Failed { error: error() }, now + release.memory),
            Verdict::Bury => kept(State::Dead { error: error() }, now + release.memory),
        }
    })
}

/// An operator makes a settled key claimable again; a consuming one only by `force`. The fencing number must
/// be the one the operator looked at.
#[must_use]
pub fn forget(
    found: Option<&Record>,
    expected: Fencing,
    force: bool,
    memory: Duration,
    now: Micros,
) -> (Settled, Write) {
    let lost = |now| (Settled::Lost { now }, Write::Keep);
    let Some(record) = live(found, now) else { return lost(StateKind::Absent) };
    let kind = record.state.kind();
    let allowed = match kind {
        StateKind::Consumed | StateKind::Failed | StateKind::Dead => true,
        StateKind::Consuming => force,
        StateKind::Absent | StateKind::Vacant => false,
    };
    if !allowed || record.fencing != expected {
        return lost(kind);
    }
    let state = State::Vacant { not_before: now, error: Arc::from("forgotten by an operator"), taken_over: None };
    let expires_at = now + memory;
    // It begins anew: of what was there only the number counts on.
    let (fencing, attempt, fingerprint, display) = (record.fencing, 0, None, None);
    let vacant = Record { fencing, attempt, fingerprint, state, expires_at, first_seen: now, updated_at: now, display };
    (Settled::Done, Write::Put(vacant))
}

/// Whether a janitor may remove the record: past its time, and its fencing number cannot be drawn again.
#[must_use]
pub fn purgeable(record: &Record, now: Micros) -> bool {
    record.expires_at <= now && record.fencing.0 < now.0
}

/// The time for which a [`CasBackend`](crate::CasBackend) keeps a record after its expiry. This margin exceeds the longest delay
/// of a claim between its read and its swap.
pub const CAS_MARGIN: Duration = Duration::from_secs(3_600);

/// Returns true if a [`CasBackend`](crate::CasBackend) may remove the record: [`CAS_MARGIN`] has passed since
/// [`expires_at`](Record::expires_at), and the record's fencing number cannot be drawn again.
///
/// Without the margin, a claim could read "nothing there" and swap late, after another claim's record was removed. The late
/// swap would succeed and grant a lower fencing number. A store whose claim is one atomic step uses [`purgeable`] instead.
#[must_use]
pub fn removable(record: &Record, now: Micros) -> bool {
    purgeable(record, now) && record.expires_at + CAS_MARGIN <= now
}

/// Whether `held` may read and note steps, as a pure function; a store says the same in its own language.
///
/// The answer is the time at which the record that it holds began ([`Record::first_seen`]): steps are noted under it,
/// and those noted under another one belong to a record that is gone. Takeover and release with a memory keep it;
/// deletion, the record's end and an operator's `forget` do not.
///
/// # Errors
/// What is there instead, where `held` does not hold the key.
pub fn begun(found: Option<&Record>, held: &Held, now: Micros) -> Result<Micros, StateKind> {
    match live(found, now).map(|record| (record, &record.state)) {
        Some((record, State::Consuming { owner, .. })) if held.is(*owner, record.fencing) => Ok(record.first_seen),
        other => Err(other.map_or(StateKind::Absent, |(_, state)| state.kind())),
    }
}

/// Notes a step among those of its record: a new one is added, one that is known only goes on to a later state. Said
/// twice it is meant once: the first result stands.
pub fn note(steps: &mut Vec<StepRecord>, step: &StepRecord) {
    match steps.iter_mut().find(|known| known.name == step.name) {
        None => steps.push(step.clone()),
        Some(known) if known.state < step.state => *known = step.clone(),
        Some(_) => {}
    }
    steps.sort_by_key(|step| step.place);
}

/// The guard of every later step: consuming, by this owner, under this grant.
fn owned(
    found: Option<&Record>,
    held: &Held,
    now: Micros,
    write: impl FnOnce(&Record, Micros, Option<Fencing>) -> Write,
) -> (Settled, Write) {
    match live(found, now).map(|record| (record, &record.state)) {
        Some((record, State::Consuming { owner, until, taken_over })) if held.is(*owner, record.fencing) => {
            (Settled::Done, write(record, *until, *taken_over))
        }
        other => {
            let now = other.map_or(StateKind::Absent, |(_, state)| state.kind());
            (Settled::Lost { now }, Write::Keep)
        }
    }
}

/// Whether it was this owner that completed, under this number.
fn completed(held: &Held, owner: OwnerToken, fencing: Fencing) -> bool {
    if owner == OwnerToken::NOT_KEPT { held.fencing == Some(fencing) } else { held.is(owner, fencing) }
}

/// `found` may be past its time: its fencing number counts all the same. `known` is what is remembered.
fn grant(
    found: Option<&Record>,
    known: Option<&Record>,
    request: &ClaimRequest,
    now: Micros,
    taken_over: Option<Fencing>,
) -> (Claim, Write) {
    let fencing = Fencing(found.map_or(0, |record| record.fencing.0.saturating_add(1)).max(now.0));
    let attempt = known.map_or(0, |record| record.attempt).saturating_add(1);
    let until = now + request.lease;
    let record = Record {
        fencing,
        attempt,
        fingerprint: request.fingerprint,
        state: State::Consuming { owner: request.owner, until, taken_over },
        expires_at: until + request.memory,
        first_seen: known.map_or(now, |record| record.first_seen),
        updated_at: now,
        display: request.display.clone(),
    };
    (Claim::Acquired(Grant { fencing, attempt, lease: request.lease, taken_over }), Write::Put(record))
}

fn bury(record: &Record, error: &Arc<str>, memory: Duration, now: Micros) -> (Claim, Write) {
    let state = State::Dead { error: error.clone() };
    let buried = Record { state, expires_at: now + memory, updated_at: now, ..record.clone() };
    (Claim::Dead(dead(record, error)), Write::Put(buried))
}

/// Once the clock has passed the grant's number the next grant's is higher without any record. Before that
/// an expired tombstone keeps the number for a tick.
fn delete(record: &Record, error: Arc<str>, now: Micros) -> Write {
    if record.fencing.0 < now.0 { Write::Delete } else { Write::Put(tombstone(record, error, now)) }
}

/// What stands for a deleted record where its number must not be forgotten: past its time, so absent for everybody.
pub(crate) fn tombstone(record: &Record, error: Arc<str>, now: Micros) -> Record {
    let state = State::Vacant { not_before: now, error, taken_over: None };
    Record { state, expires_at: now, updated_at: now, display: None, ..record.clone() }
}

fn differs(record: &Record, request: &ClaimRequest) -> bool {
    // A dead key stays dead for every payload: the operator decides.
    record.state.kind() != StateKind::Dead
        && matches!((record.fingerprint, request.fingerprint), (Some(kept), Some(new)) if kept != new)
}

fn dead(record: &Record, error: &Arc<str>) -> Dead {
    Dead { attempts: record.attempt, fencing: record.fencing, error: error.clone() }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::{Identity, Scene};

    /// What completing again comes to, by a record that keeps `kept` and a request of `asks` under `number`.
    fn completed_again(kept: OwnerToken, asks: OwnerToken, number: Option<u64>) -> Settled {
        let key = Identity::new(Scene::Mq, "protocol", "k").key("tests").unwrap();
        let record = Record {
            fencing: Fencing(7),
            attempt: 1,
            fingerprint: None,
            state: State::Consumed { owner: kept, value: None },
            expires_at: Micros(1_000),
            first_seen: Micros(7),
            updated_at: Micros(8),
            display: None,
        };
        let done = Completion { value: None, retain: Duration::from_secs(1) };
        let (settled, write) =
            complete(Some(&record), &Held { key, owner: asks, fencing: number.map(Fencing) }, &done, Micros(9));
        assert_eq!(write, Write::Keep, "whoever asks, the first result stands");
        settled
    }

    const LOST: Settled = Settled::Lost { now: StateKind::Consumed };

    #[test]
    fn an_owner_that_was_not_kept_is_known_by_its_number_alone() {
        let again = |asks, number| completed_again(OwnerToken::NOT_KEPT, asks, number);
        assert_eq!(again(OwnerToken(5), Some(7)), Settled::Done);
        assert_eq!(again(OwnerToken(5), Some(6)), LOST, "an overtaken run");
        assert_eq!(again(OwnerToken(5), None), LOST, "nobody can tell");
        assert_eq!(again(OwnerToken::NOT_KEPT, None), LOST, "no token is not a token");
    }

    #[test]
    fn an_owner_that_was_kept_is_known_by_its_token_and_its_number_if_told() {
        let again = |asks, number| completed_again(OwnerToken(5), asks, number);
        assert_eq!(again(OwnerToken(5), Some(7)), Settled::Done);
        assert_eq!(again(OwnerToken(5), None), Settled::Done);
        assert_eq!(again(OwnerToken(5), Some(6)), LOST);
        assert_eq!(again(OwnerToken(4), Some(7)), LOST);
    }
}
