//! Claims, changed by a bug.
use std::time::Duration;

use idempotent_core::protocol::{self, Write};
use idempotent_core::{
    Claim, ClaimRequest, FencingToken, Grant, InFlight, OnExpiry, OwnerToken, Record, State, StateKind, Timestamp,
};

use crate::mutants::Bug;

pub(in crate::mutants) fn claim(
    bug: Option<Bug>,
    found: Option<&Record>,
    ask: &ClaimRequest,
    now: Timestamp,
) -> (Claim, Write) {
    let Some(bug) = bug else { return protocol::claim(found, ask, now) };
    let live = protocol::live(found, now);
    if let Some(answer) = live.and_then(|record| early(bug, record, ask, now)) {
        return (answer, Write::Keep);
    }
    let bent = live.map(|record| seen(bug, record, ask, now));
    let (mut claim, mut write) =
        protocol::claim(bent.as_ref().or(found), &asked(bug, live, ask, now), at(bug, live, ask, now));
    match (&mut claim, &mut write) {
        (Claim::Acquired(grant), Write::Put(record)) => granted(bug, live, ask, grant, record),
        (Claim::Acquired(grant), _) if bug == Bug::AttemptCountedAtRelease => grant.attempt += 1,
        _ => {}
    }
    (claim, write)
}

/// Returns an answer that does not depend on the protocol.
fn early(bug: Bug, record: &Record, ask: &ClaimRequest, now: Timestamp) -> Option<Claim> {
    let kind = record.state.kind();
    let in_flight = |until: Timestamp| Some(Claim::InFlight(InFlight::Leased { rest: until - now }));
    let no_fingerprint = record.fingerprint.is_some() != ask.fingerprint.is_some();
    match (bug, &record.state) {
        (Bug::FingerprintFirst, _) if record.fingerprint.is_some() && record.fingerprint != ask.fingerprint => {
            Some(Claim::Mismatch)
        }
        (Bug::NoFingerprintDiffers, State::Consuming { until, .. }) if no_fingerprint && *until > now => {
            Some(Claim::Mismatch)
        }
        (Bug::NoFingerprintDiffers, _) if no_fingerprint && kind == StateKind::Consumed => Some(Claim::Mismatch),
        (Bug::RepetitionIsInFlight, State::Consuming { owner, until, .. }) if *owner == ask.owner => in_flight(*until),
        (Bug::ExpiryIgnored, State::Consuming { owner, until, .. }) if *owner != ask.owner && *until <= now => {
            in_flight(*until)
        }
        _ => None,
    }
}

/// Returns the record as the bug sees it.
fn seen(bug: Bug, record: &Record, ask: &ClaimRequest, now: Timestamp) -> Record {
    let mut seen = record.clone();
    let last = ask.max_attempts > 0 && record.attempt >= ask.max_attempts;
    let vacant = |error| State::Vacant { not_before: now, error, taken_over: None };
    match (bug, &mut seen.state) {
        (Bug::BuriesTheLiving, State::Consuming { owner, until, .. }) if last && *owner != ask.owner => *until = now,
        (Bug::DelayIgnored, State::Vacant { not_before, .. }) => *not_before = now,
        (Bug::DeadIsGranted, State::Dead { error }) => seen.state = vacant(error.clone()),
        (Bug::FailedIsGranted, State::Failed { error }) => seen.state = vacant(error.clone()),
        (Bug::FingerprintIgnored, _) => seen.fingerprint = None,
        _ => {}
    }
    seen
}

/// Returns the request as the bug sees it.
fn asked(bug: Bug, live: Option<&Record>, ask: &ClaimRequest, now: Timestamp) -> ClaimRequest {
    let mut asked = ask.clone();
    let own = match live.map(|record| &record.state) {
        Some(State::Consuming { owner, until, .. }) if *owner == ask.owner => Some(*until),
        _ => None,
    };
    match (bug, own) {
        (Bug::RepetitionCounts, Some(_)) => asked.owner = OwnerToken(!ask.owner.0),
        (Bug::RepetitionTakesOver, Some(until)) if until <= now => asked.owner = OwnerToken(!ask.owner.0),
        (Bug::ParkIgnored, _) => asked.on_expiry = OnExpiry::Takeover,
        (Bug::NoLimitIsTen, _) if ask.max_attempts == 0 => asked.max_attempts = 10,
        _ => {}
    }
    asked
}

/// Returns the time by which the bug judges.
fn at(bug: Bug, live: Option<&Record>, ask: &ClaimRequest, now: Timestamp) -> Timestamp {
    match (bug, live.map(|record| &record.state)) {
        (Bug::EarlyTakeover, Some(_)) => now + Duration::from_millis(1),
        (Bug::RepetitionCounts, Some(State::Consuming { owner, until, .. })) if *owner == ask.owner => now.max(*until),
        _ => now,
    }
}

fn granted(bug: Bug, live: Option<&Record>, ask: &ClaimRequest, grant: &mut Grant, record: &mut Record) {
    match bug {
        Bug::FencingStartsAnew => record.fencing = FencingToken(record.attempt.into()),
        Bug::FencingInNanos => record.fencing = FencingToken(record.fencing.0.saturating_mul(1_000)),
        Bug::TakeoverKeepsNumber => {
            record.fencing = grant.taken_over.unwrap_or(record.fencing);
        }
        Bug::AttemptCountedAtRelease => record.attempt -= 1,
        Bug::FingerprintStays => {
            record.fingerprint = live.map_or(ask.fingerprint, |before| before.fingerprint.or(ask.fingerprint));
        }
        Bug::RepetitionCounts | Bug::RepetitionTakesOver => {
            if let State::Consuming { owner, .. } = &mut record.state {
                *owner = ask.owner;
            }
        }
        _ => {}
    }
    grant.fencing = record.fencing;
}
