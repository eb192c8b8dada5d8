//! Tests that no check is empty: for each check, a short constructed history that only this check rejects.
use std::sync::Arc;
use std::time::Duration;

use super::violations;
use crate::events::{Claimed, Event, How, Told, What};
use crate::plan::Plan;
use idempotent_core::{
    Claim, Completion, Consumed, Disposition, FencingToken, Fingerprint, Grant, InFlight, Outcome, OwnerToken,
    ReleaseKind, Settled, StateKind,
};
use idempotent_testkit::VirtualClock;

const KEY: u128 = 7 << 120;
const LEASE: Duration = Duration::from_secs(10);
const DONE: Settled = Settled::Done;
const LOST: Settled = Settled::Lost { now: StateKind::Vacant };

/// Creates a plan in which only the resource matters.
fn quiet() -> Plan {
    let mut plan = Plan::of(0);
    (plan.fenced, plan.fingerprints) = (true, true);
    for terms in &mut plan.workers {
        (terms.lease_ms, terms.max_run_ms) = (10_000, 26_000);
        (terms.unprotected, terms.release_on_cancel) = (false, false);
    }
    (plan.deliveries, plan.mischief, plan.faults) = Default::default();
    plan
}

/// Creates a history from pairs of second and event.
fn told(events: impl IntoIterator<Item = (u64, What)>) -> Told {
    let events = events.into_iter();
    let events = events.map(|(second, what)| Event { at: VirtualClock::START.0 + second * 1_000_000, worker: 1, what });
    let mut events: Vec<_> = events.collect();
    count(&mut events);
    let (unsettled, counts, scripted) = Default::default();
    Told { plan: quiet(), events, unsettled, counts, scripted }
}

/// Sets the attempts: each grant is one more run than the one before, except for a repeated claim.
fn count(events: &mut [Event]) {
    let mut last = (None, 0);
    for event in events {
        if let What::Claim(Claimed { owner, answer: Claim::Acquired(grant), .. }) = &mut event.what {
            last = (Some(owner.0), if last.0 == Some(owner.0) { last.1 } else { last.1 + 1 });
            grant.attempt = last.1;
        }
    }
}

#[track_caller]
fn only(check: &str, history: &Told) {
    let found = violations(history);
    let names: Vec<_> = found.iter().map(|(name, _)| *name).collect();
    assert_eq!(names, [check], "{found:#?}");
}

fn asks(owner: u128, payload: Option<u8>, answer: Claim) -> What {
    let fingerprint = payload.map(|payload| Fingerprint::of_bytes([payload]));
    let (key, owner, retention) = (KEY, OwnerToken(owner), Duration::from_secs(3_600));
    What::Claim(Claimed { key, owner, lease: LEASE, retention, max_attempts: 0, parks: false, fingerprint, answer })
}

fn granted(fencing: u64) -> Claim {
    Claim::Acquired(Grant { fencing: FencingToken(fencing), attempt: 1, lease: LEASE, taken_over: None })
}

/// Grants fencing token n to owner n.
fn gets(owner: u64) -> What {
    asks(owner.into(), None, granted(owner))
}

fn in_flight(rest: u64) -> Claim {
    Claim::InFlight(InFlight::Leased { rest: Duration::from_secs(rest) })
}

fn effect(fencing: u64, believes: bool) -> What {
    What::Effect { key: KEY, fencing: Some(FencingToken(fencing)), accepted: true, believes }
}

fn value(text: &str) -> Option<Arc<[u8]>> {
    Some(Arc::from(text.as_bytes()))
}

fn completes(owner: u128, answer: Settled) -> What {
    let done = Completion { value: value("1 first"), retain: Duration::from_secs(3_600) };
    What::Complete { key: KEY, owner: OwnerToken(owner), number: None, done, answer }
}

fn releases(owner: u128, verdict: ReleaseKind, answer: Settled) -> What {
    What::Release {
        key: KEY,
        owner: OwnerToken(owner),
        number: None,
        verdict,
        delay: Duration::ZERO,
        retention: Duration::from_secs(3_600),
        answer,
    }
}

fn renews(owner: u128, answer: Settled) -> What {
    What::Renew { key: KEY, owner: OwnerToken(owner), number: None, lease: LEASE, answer }
}

fn consumed(fencing: u64, text: &str) -> Claim {
    Claim::Consumed(Consumed { fencing: FencingToken(fencing), value: value(text) })
}

fn ended(fencing: Option<u64>, outcome: Outcome) -> What {
    What::Ended { key: Some(KEY), fencing: fencing.map(FencingToken), outcome }
}

fn delivered(payload: u64, outcome: Outcome, disposition: Disposition, text: Option<&str>) -> What {
    let (outcome, value) = (Some(outcome), text.map(str::to_owned));
    What::Delivered { delivery: 1, key: KEY, payload, outcome, disposition, value }
}

fn handler(fencing: u64, how: How) -> What {
    What::HandlerEnd { key: KEY, fencing: Some(FencingToken(fencing)), how }
}

#[test]
fn a_good_history_is_not_refused() {
    let history = told([
        (0, gets(1)),
        (1, effect(1, true)),
        (2, renews(1, DONE)),
        (11, in_flight_of(1)),
        (12, gets(2)),
        (13, effect(2, true)),
        (14, completes(1, LOST)),
        (15, handler(2, How::Well)),
        (15, completes(2, DONE)),
        (16, ended(Some(2), Outcome::Ran)),
        (16, delivered(1, Outcome::Ran, Disposition::Ack, Some("1 first"))),
        (17, asks(3, None, consumed(2, "1 first"))),
        (17, ended(None, Outcome::Replayed)),
    ]);
    assert_eq!(violations(&history), []);
}

fn in_flight_of(rest: u64) -> What {
    asks(9, None, in_flight(rest))
}

#[test]
fn two_holders_at_a_time_are_found() {
    only("I1", &told([(0, gets(1)), (5, gets(2))]));
    // Renewed at 5, the lease lasts until 15.
    only("I1", &told([(0, gets(1)), (5, renews(1, DONE)), (14, gets(2))]));
    only("I1", &told([(0, gets(1)), (11, effect(1, true))]));
    only("I1", &told([(0, gets(1)), (11, gets(2)), (12, effect(1, true))]));
}

#[test]
fn a_release_by_another_owner_is_found() {
    only("I2", &told([(0, gets(1)), (1, releases(2, ReleaseKind::Delete, DONE))]));
    only("I2", &told([(0, gets(1)), (11, gets(2)), (12, releases(1, ReleaseKind::Vacate, DONE))]));
}

#[test]
fn a_completion_by_a_superseded_owner_is_found() {
    only("I3", &told([(0, gets(1)), (11, gets(2)), (12, effect(2, true)), (13, completes(1, DONE))]));
    let released = [(1, effect(1, true)), (2, releases(1, ReleaseKind::Delete, DONE)), (3, completes(1, DONE))];
    only("I3", &told([(0, gets(1))].into_iter().chain(released)));
}

/// Creates a history of a key that is granted at 0 and consumed at 2.
fn done(then: impl IntoIterator<Item = (u64, What)>) -> Told {
    told([(0, gets(1)), (1, effect(1, true)), (2, completes(1, DONE))].into_iter().chain(then))
}

#[test]
fn an_undone_completion_is_found() {
    only("I4", &done([(3, releases(1, ReleaseKind::Delete, DONE))]));
    only("I4", &done([(3, asks(2, None, Claim::Delayed { rest: LEASE }))]));
    // By the executor: the release was rejected, but should not have been requested.
    only("I4", &done([(3, releases(1, ReleaseKind::Delete, LOST))]));
}

#[test]
fn a_grant_within_the_retention_is_found() {
    only("I4b", &done([(3, gets(2))]));
}

#[test]
fn a_second_result_is_found() {
    only("I5", &done([(3, asks(2, None, consumed(1, "1 second")))]));
    only("I5", &done([(3, delivered(1, Outcome::Ran, Disposition::Ack, Some("1 second")))]));
}

#[test]
fn a_falling_fencing_number_is_found() {
    only("I6", &told([(0, gets(2)), (11, gets(1))]));
    let again = [(0, gets(5)), (1, releases(5, ReleaseKind::Delete, DONE)), (2, asks(6, None, granted(5)))];
    only("I6", &told(again));
    only("I6", &told([(0, gets(1)), (1, asks(1, None, granted(2)))]));
}

#[test]
fn a_late_effect_on_a_fenced_resource_is_found() {
    only("I7", &told([(0, gets(1)), (11, gets(2)), (12, effect(2, true)), (13, effect(1, false))]));
    let refused = What::Effect { key: KEY, fencing: Some(FencingToken(1)), accepted: false, believes: true };
    only("I7", &told([(0, gets(1)), (1, refused)]));
}

#[test]
fn a_settlement_before_the_outcome_is_known_is_found() {
    only("I8", &told([(0, gets(1)), (1, effect(1, true)), (2, ended(Some(1), Outcome::Ran))]));
    only("I8", &done([(3, ended(None, Outcome::Replayed))]));
    only("I8", &done([(3, delivered(1, Outcome::LeaseLost, Disposition::Ack, None))]));
    only("I8", &told([(0, gets(1)), (1, ended(Some(1), Outcome::Dead { fencing: FencingToken(1) }))]));
    only("I8", &told([(0, ended(None, Outcome::Mismatch))]));
}

#[test]
fn a_completion_without_an_effect_is_found() {
    only("I9", &told([(0, gets(1)), (1, completes(1, DONE))]));
}

#[test]
fn a_run_without_a_cause_is_found() {
    only("I10", &told([(0, gets(1)), (1, releases(1, ReleaseKind::MarkDead, DONE)), (2, gets(2))]));
    let released =
        [(0, gets(1)), (1, effect(1, true)), (2, handler(1, How::Well)), (3, releases(1, ReleaseKind::Delete, DONE))];
    only("I10", &told(released));
    only("I10", &told([(0, gets(1)), (1, releases(1, ReleaseKind::Refund, DONE)), (2, handler(1, How::Failed))]));
}

#[test]
fn an_effect_without_a_grant_is_found() {
    only("I11", &told([(0, gets(1)), (1, effect(2, false))]));
    only("I11", &told([(0, gets(1)), (1, effect(1, true)), (2, effect(1, true))]));
    let bare = What::Effect { key: KEY, fencing: None, accepted: true, believes: false };
    only("I11", &told([(0, bare)]));
}

#[test]
fn another_payload_that_counts_as_a_duplicate_is_found() {
    let mine = || (0, asks(1, Some(1), granted(1)));
    only("I12", &told([mine(), (1, asks(2, Some(2), in_flight(9)))]));
    let replay = asks(2, Some(2), consumed(1, "1 first"));
    only("I12", &told([mine(), (1, effect(1, true)), (2, completes(1, DONE)), (3, replay)]));
    only("I12", &told([mine(), (1, asks(2, Some(1), Claim::Mismatch))]));
    only("I12", &done([(3, delivered(2, Outcome::Ran, Disposition::Ack, Some("1 first")))]));
}

#[test]
fn a_delivery_that_never_ends_is_found() {
    only("I13", &told([(0, gets(1)), (10, asks(2, None, in_flight(5)))]));
    only("I13", &told([(0, gets(1)), (1, asks(2, None, in_flight(8)))]));
    let mut history = told([]);
    history.unsettled.push("a delivery".to_owned());
    only("I13", &history);
}

#[test]
fn an_owner_that_is_rejected_within_its_lease_is_found() {
    only("I14", &told([(0, gets(1)), (5, renews(1, LOST))]));
    only("I14", &told([(0, gets(1)), (1, effect(1, true)), (5, completes(1, LOST))]));
    only("I14", &told([(0, gets(1)), (5, asks(1, None, in_flight(5)))]));
    // By the executor, without a reason.
    only("I14", &told([(0, gets(1)), (5, ended(Some(1), Outcome::LeaseLost))]));
    // A late completion without a takeover.
    only("I14", &told([(0, gets(1)), (1, effect(1, true)), (15, completes(1, LOST))]));
}

#[test]
fn two_outcomes_of_a_run_are_found() {
    for counts in [(2, 1, 1), (1, 1, 2), (1, 2, 2)] {
        let mut history = told([]);
        history.counts.insert(1, counts);
        only("one outcome", &history);
    }
}
