//! Tests of the protocol: each written record as a whole.
use std::sync::Arc;
use std::time::Duration;

use crate::protocol::{
    CAS_MARGIN, Write, begun, claim, complete, note, purgeable, release, removable, renew, tombstone,
};
use crate::{
    Claim, ClaimHandle, ClaimRequest, Completion, FencingToken, Fingerprint, Identity, Key, OnExpiry, OwnerToken,
    Record, Release, ReleaseKind, Scene, Settled, State, StateKind, StepRecord, StepState, Timestamp,
};

const OWNER: OwnerToken = OwnerToken(5);
const SECOND: Duration = Duration::from_secs(1);
/// The time of the records of [`consuming`].
const BEGUN: Timestamp = Timestamp(1_000_000_000);

fn key() -> Key {
    Identity::new(Scene::Mq, "protocol", "k").key("tests").unwrap()
}

/// Returns the record of a run that was claimed at `BEGUN`, for a lease of 30 s.
fn consuming() -> Record {
    Record {
        fencing: FencingToken(BEGUN.0),
        attempt: 2,
        fingerprint: Some(Fingerprint::of_bytes("payload")),
        state: State::Consuming { owner: OWNER, until: BEGUN + 30 * SECOND, taken_over: None },
        expires_at: BEGUN + 90 * SECOND,
        first_seen: BEGUN,
        updated_at: BEGUN,
        display: Some(Arc::from("order 17")),
    }
}

fn held() -> ClaimHandle {
    ClaimHandle { key: key(), owner: OWNER, fencing: Some(FencingToken(BEGUN.0)), terms: None }
}

fn request() -> ClaimRequest {
    ClaimRequest {
        owner: OwnerToken(6),
        lease: 30 * SECOND,
        max_attempts: 2,
        retention: 60 * SECOND,
        ..ClaimRequest::new(key()).unwrap()
    }
}

fn vacant(not_before: Timestamp, error: &str) -> State {
    State::Vacant { not_before, error: error.into(), taken_over: None }
}

#[test]
fn a_renewal_writes_the_new_end_and_its_time() {
    let now = BEGUN + 10 * SECOND;
    let until = now + 30 * SECOND;
    let renewed = Record {
        state: State::Consuming { owner: OWNER, until, taken_over: None },
        expires_at: until + 60 * SECOND,
        updated_at: now,
        ..consuming()
    };
    assert_eq!(renew(Some(&consuming()), &held(), 30 * SECOND, now), (Settled::Done, Write::Put(renewed)));
}

#[test]
fn a_completion_writes_the_result_for_its_retention_and_no_display_key() {
    let now = BEGUN + 10 * SECOND;
    let done = Completion { value: Some(Arc::from(*b"result")), retain: 7 * SECOND };
    let consumed = Record {
        state: State::Consumed { owner: OWNER, value: done.value.clone() },
        expires_at: now + 7 * SECOND,
        updated_at: now,
        display: None,
        ..consuming()
    };
    assert_eq!(complete(Some(&consuming()), &held(), &done, now), (Settled::Done, Write::Put(consumed)));
}

#[test]
fn a_release_writes_the_state_of_its_kind() {
    let now = BEGUN + 10 * SECOND;
    let write = |kind, delay: Duration, record: Record| {
        let wish = Release { kind, delay, retention: 60 * SECOND, error: "failed".into() };
        let (settled, write) = release(Some(&record), &held(), &wish, now);
        assert_eq!(settled, Settled::Done);
        write
    };
    let zero = Duration::ZERO;
    for (kind, state) in [
        (ReleaseKind::MarkFailed, State::Failed { error: "failed".into() }),
        (ReleaseKind::MarkDead, State::Dead { error: "failed".into() }),
    ] {
        let kept = Record { state, expires_at: now + 60 * SECOND, updated_at: now, ..consuming() };
        assert_eq!(write(kind, zero, consuming()), Write::Put(kept));
    }
    let left = |attempt, delay: Duration| Record {
        state: vacant(now + delay, "failed"),
        attempt,
        expires_at: now + delay + 60 * SECOND,
        updated_at: now,
        display: None,
        ..consuming()
    };
    assert_eq!(write(ReleaseKind::Vacate, SECOND, consuming()), Write::Put(left(2, SECOND)));
    assert_eq!(write(ReleaseKind::Refund, zero, consuming()), Write::Put(left(1, zero)));
    // A first attempt without a takeover and without a delay leaves no record.
    let first = Record { attempt: 1, ..consuming() };
    assert_eq!(write(ReleaseKind::Refund, zero, first.clone()), Write::Delete);
    assert_eq!(write(ReleaseKind::Refund, SECOND, first.clone()), Write::Put(left(0, SECOND)));
    let taken_over = Some(FencingToken(7));
    let second =
        Record { state: State::Consuming { owner: OWNER, until: BEGUN + 30 * SECOND, taken_over }, ..first.clone() };
    let state = State::Vacant { not_before: now, error: "failed".into(), taken_over };
    assert_eq!(write(ReleaseKind::Refund, zero, second), Write::Put(Record { state, ..left(0, zero) }));
    // A number that the clock has not passed stays for one tick.
    let ahead = Record { fencing: FencingToken(now.0), ..first };
    let wish = Release { kind: ReleaseKind::Delete, delay: zero, retention: zero, error: "failed".into() };
    let held = ClaimHandle { fencing: Some(ahead.fencing), ..held() };
    let stone =
        Record { state: vacant(now, "failed"), expires_at: now, updated_at: now, display: None, ..ahead.clone() };
    assert_eq!(release(Some(&ahead), &held, &wish, now), (Settled::Done, Write::Put(stone.clone())));
    assert_eq!(tombstone(&ahead, "failed".into(), now), stone);
}

#[test]
fn a_key_without_attempts_left_is_buried() {
    let now = BEGUN + 40 * SECOND;
    for (state, on_expiry, error) in [
        (vacant(now, "the last error"), OnExpiry::Takeover, "the last error"),
        (consuming().state, OnExpiry::Takeover, "the worker died in its last attempt"),
        (consuming().state, OnExpiry::Park, "parked"),
    ] {
        let found = Record { state, ..consuming() };
        let (answer, write) = claim(Some(&found), &ClaimRequest { on_expiry, ..request() }, now);
        let Write::Put(buried) = write else { panic!("{write:?}") };
        let (Claim::Dead(dead), State::Dead { error: written }) = (answer, buried.state.clone()) else {
            panic!("{buried:?}")
        };
        assert!(dead.error == written && (written.len() > 5 || &*written == error), "{written}");
        assert_eq!(
            buried,
            Record { state: buried.state.clone(), expires_at: now + 60 * SECOND, updated_at: now, ..found }
        );
    }
    let retried = Record { attempt: 1, state: vacant(now, "failed"), ..consuming() };
    assert!(matches!(claim(Some(&retried), &request(), now).0, Claim::Acquired(grant) if grant.attempt == 2));
    let early = Record { state: vacant(now + SECOND, "failed"), ..retried };
    assert!(matches!(claim(Some(&early), &request(), now).0, Claim::Delayed { rest } if rest == SECOND));
}

#[test]
fn a_record_is_removed_after_its_end_and_its_fencing_number() {
    let record = |expires_at, fencing| Record { expires_at, fencing: FencingToken(fencing), ..consuming() };
    let now = BEGUN + CAS_MARGIN;
    for (record, is_purgeable, is_removable) in [
        (record(now, now.0 - 1), true, false),
        (record(now + SECOND, now.0 - 1), false, false),
        (record(BEGUN, now.0 - 1), true, true),
        (record(BEGUN, now.0), false, false),
        (record(BEGUN + SECOND, now.0 - 1), true, false),
    ] {
        assert_eq!((purgeable(&record, now), removable(&record, now)), (is_purgeable, is_removable), "{record:?}");
    }
}

#[test]
fn steps_belong_to_the_owner_and_keep_their_first_result() {
    let now = BEGUN + SECOND;
    assert_eq!(begun(Some(&consuming()), &held(), now), Ok(BEGUN));
    let other = ClaimHandle { owner: OwnerToken(6), ..held() };
    assert_eq!(begun(Some(&consuming()), &other, now), Err(StateKind::Consuming));
    assert_eq!(begun(None, &held(), now), Err(StateKind::Absent));
    let step =
        |value: &[u8], state| StepRecord { name: "charge".into(), place: 0, state, value: Some(Arc::from(value)) };
    let mut steps = Vec::new();
    for (new, kept) in [
        (step(b"first", StepState::Done), step(b"first", StepState::Done)),
        (step(b"repeated", StepState::Done), step(b"first", StepState::Done)),
        (step(b"late", StepState::Intended), step(b"first", StepState::Done)),
        (step(b"undone", StepState::Undoing), step(b"undone", StepState::Undoing)),
    ] {
        note(&mut steps, &new);
        assert!(steps == [kept], "{steps:?}");
    }
}

#[test]
fn a_state_has_a_name_and_a_lease_of_31_days_is_the_longest() {
    let kinds = [
        StateKind::Absent,
        StateKind::Vacant,
        StateKind::Consuming,
        StateKind::Consumed,
        StateKind::Failed,
        StateKind::Dead,
    ];
    assert_eq!(kinds.map(|kind| kind.to_string()), ["absent", "vacant", "consuming", "consumed", "failed", "dead"]);
    let until = |until| Record { state: State::Consuming { owner: OWNER, until, taken_over: None }, ..consuming() };
    assert!(until(BEGUN + Record::LONGEST_LEASE).check().is_ok());
    let longer = Timestamp((BEGUN + Record::LONGEST_LEASE).0 + 1);
    assert!(until(longer).check().unwrap_err().to_string().contains("`until`"));
}
