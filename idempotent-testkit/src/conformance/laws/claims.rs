//! Laws about the answer to a claim in each state of a key.
use std::sync::Arc;
use std::time::Duration;

use idempotent_core::{
    Claim, ClaimRequest, Completion, Consumed, Dead, Fingerprint, InFlight, OnExpiry, OwnerToken, Release, ReleaseKind,
    Settled, State, StateKind,
};

use crate::conformance::Subject;
use crate::conformance::answers::{HELD, IN_FLIGHT, answers, answers_like};
use crate::conformance::subject::{HOUR, HeldBy, MS, acquired, must, put_down};

pub async fn an_absent_key_is_acquired(s: &Subject) {
    answers!(s.peek().await, None, "nothing is there");
    let fingerprint = Some(Fingerprint::of_bytes("payload"));
    let ask = ClaimRequest { fingerprint, display: Some("o-17".into()), ..s.ask(1) };
    let grant = acquired(s.claim(&ask).await);
    answers!(
        (grant.attempt, grant.lease, grant.taken_over),
        (1, ask.lease, None),
        "the first grant of a key is attempt 1, with the requested lease, and is not a takeover"
    );
    let record = s.peek().await.expect("a claimed key has a record");
    answers!(
        (record.fencing, record.attempt),
        (grant.fencing, 1),
        "the record has the number and the attempt of the grant"
    );
    answers!(
        (record.fingerprint, record.display),
        (fingerprint, Some("o-17".into())),
        "the record keeps the fingerprint and the display text of the claim"
    );
    answers!(record.first_seen, record.updated_at, "a new record was first seen when it was written");
    let State::Consuming { owner, until, taken_over } = record.state else {
        panic!("a key that was just claimed is {:?}, the protocol says consuming", record.state)
    };
    answers!(
        (owner, taken_over),
        (OwnerToken(1), None),
        "the record has the owner token of the claim, and is not a takeover"
    );
    answers!(until - record.updated_at, ask.lease, "the lease counts from the claim, by the store's clock");
    answers!(record.expires_at - until, ask.retention, "the record outlives its lease by its memory");
    if let Some(clock) = &s.clock {
        answers!(record.updated_at, idempotent_core::Clock::wall(clock), "the store's own clock counts");
    }
}

pub async fn a_held_key_is_in_flight_for_other_callers(s: &Subject) {
    acquired(s.claim_by(1).await);
    s.pass(s.lease() / 3).await;
    let before = s.peek().await;
    match s.claim_by(2).await {
        // A store that cannot see the transaction of another owner may not know.
        Claim::InFlight(InFlight::Busy) => {}
        Claim::InFlight(InFlight::Leased { rest }) if s.clock.is_some() => {
            answers!(rest, s.lease() * 2 / 3, "a third of the lease has passed, and the answer has the rest")
        }
        Claim::InFlight(InFlight::Leased { rest }) => assert!(
            !rest.is_zero() && rest < s.lease(),
            "the store reports that {rest:?} are left of a lease of {:?}, of which a third has passed",
            s.lease()
        ),
        other => panic!("the store answered {other:?}, the protocol says in flight: another owner holds the key"),
    }
    answers!(s.peek().await, before, "asking changes nothing");
}

pub async fn the_same_owner_claiming_again_gets_the_same_grant(s: &Subject) {
    let first = acquired(s.claim_by(1).await);
    let before = s.peek().await;
    answers!(
        acquired(s.claim_by(1).await),
        first,
        "the same owner asking again gets the grant it has, number and attempt included"
    );
    answers!(s.peek().await, before, "nothing is counted, nothing is extended");
    s.pass(s.lease()).await;
    let over = acquired(s.claim_by(2).await);
    answers!(over.taken_over, Some(first.fencing), "a takeover names the previous owner, and a first run does not");
    answers!(acquired(s.claim_by(2).await), over, "also after a takeover");
}

pub async fn the_same_owner_may_claim_again_after_its_lease_before_a_takeover(s: &Subject) {
    let first = acquired(s.claim_by(1).await);
    s.pass(s.lease() * 2).await;
    answers!(
        acquired(s.claim(&ClaimRequest { max_attempts: 1, ..s.ask(1) }).await),
        first,
        "the same owner that claims again gets its grant, also after its lease, unless another owner took over"
    );
}

pub async fn a_lease_may_be_taken_over_from_its_end(s: &Subject) {
    let first = acquired(s.claim_by(1).await);
    if s.pass_almost(s.lease()).await {
        answers!(s.claim_by(2).await, Claim::InFlight(InFlight::Leased { rest: MS }), "the lease has a ms left");
        s.pass(MS).await;
    } else {
        answers_like!(s.claim_by(2).await, Claim::InFlight(_), "{IN_FLIGHT}");
        s.pass(s.lease()).await;
    }
    let second = acquired(s.claim_by(3).await);
    answers!(
        (second.attempt, second.taken_over),
        (2, Some(first.fencing)),
        "a takeover is the next attempt, and names the previous owner"
    );
    answers_like!(s.claim_by(4).await, Claim::InFlight(_), "one takes over, no more");
}

pub async fn an_expired_lease_is_parked_if_asked(s: &Subject) {
    let grant = acquired(s.claim_by(1).await);
    let park = ClaimRequest { on_expiry: OnExpiry::Park, ..s.ask(2) };
    answers_like!(s.claim(&park).await, Claim::InFlight(_), "not while it lasts");
    s.pass(s.lease()).await;
    let Claim::Dead(dead) = s.claim(&park).await else { panic!("a parked key is dead") };
    answers!(
        (dead.attempts, dead.fencing),
        (1, grant.fencing),
        "a parked key has the attempts and the number of the run that left it"
    );
    answers!(s.claim_by(3).await, Claim::Dead(dead), "for every later claim too");
    answers!(s.state().await, StateKind::Dead, "a parked key is dead");
}

pub async fn a_deleted_key_may_be_claimed_at_once_and_leaves_no_trace(s: &Subject) {
    acquired(s.claim_by(1).await);
    answers!(s.release(1, ReleaseKind::Delete).await, Settled::Done, "{HELD}");
    answers!(s.peek().await, None, "nothing is there");
    let again = acquired(s.claim_by(2).await);
    answers!(
        (again.attempt, again.taken_over),
        (1, None),
        "nothing of a deleted key is remembered: its next run is the first"
    );
}

pub async fn a_vacant_key_is_delayed_until_its_time_and_then_acquired(s: &Subject) {
    acquired(s.claim_by(1).await);
    let delay = s.lease();
    let vacate = Release { delay, ..put_down(ReleaseKind::Vacate) };
    answers!(s.release_as(1, &vacate).await, Settled::Done, "{HELD}");
    let record = s.peek().await.expect("a vacant key has a record");
    answers!(record.display, None, "the display of the key is not stored");
    let State::Vacant { error, not_before, .. } = record.state else {
        panic!("a key that was just vacated is {:?}, the protocol says vacant", record.state)
    };
    answers!(
        (&*error, not_before - record.updated_at),
        ("no stock", delay),
        "a vacant key keeps its error, and its delay counts from the release"
    );
    if s.pass_almost(delay).await {
        answers!(s.claim_by(2).await, Claim::Delayed { rest: MS }, "the delay has a ms left");
        s.pass(MS).await;
    } else {
        answers_like!(s.claim_by(2).await, Claim::Delayed { .. }, "the key is vacant, and its delay is not over");
        s.pass(delay).await;
    }
    let grant = acquired(s.claim_by(2).await);
    answers!((grant.attempt, grant.taken_over), (2, None), "a vacant key has no owner to take over from");
}

pub async fn a_consumed_key_answers_with_its_value(s: &Subject) {
    for (name, value) in [("some", Some(&b"v"[..])), ("empty", Some(&b""[..])), ("none", None)] {
        let ask = |owner| ClaimRequest { key: s.key(name), display: Some("shown".into()), ..s.ask(owner) };
        let grant = acquired(s.claim(&ask(1)).await);
        let value: Option<Arc<[u8]>> = value.map(Arc::from);
        let done = Completion { value: value.clone(), retain: HOUR };
        answers!(must("complete", s.store.complete(&ask(1).held(), &done).await), Settled::Done, "{HELD}");
        let consumed = Claim::Consumed(Consumed { fencing: grant.fencing, value });
        answers!(s.claim(&ask(2)).await, consumed, "{name}");
        answers!(s.claim(&ask(1)).await, consumed, "{name}: its owner too, there is nothing left to run");
        let record = must("peek", s.store.peek(&s.key(name)).await).expect("a consumed key has a record");
        answers!(
            (record.attempt, record.display),
            (1, None),
            "a consumed key keeps its attempt and drops its display text"
        );
    }
}

pub async fn a_failed_key_answers_with_its_error(s: &Subject) {
    acquired(s.claim_by(1).await);
    answers!(s.release(1, ReleaseKind::MarkFailed).await, Settled::Done, "{HELD}");
    answers!(
        s.claim_by(2).await,
        Claim::Failed { error: "no stock".into() },
        "the key has failed for good, and answers with its error"
    );
    answers!(
        s.claim_by(1).await,
        Claim::Failed { error: "no stock".into() },
        "the key has failed for good, and answers with its error"
    );
    s.pass(Duration::from_millis(5)).await;
    answers!(s.state().await, StateKind::Failed, "asking does not change a failed key");
}

pub async fn a_dead_key_answers_with_its_attempts_and_error(s: &Subject) {
    acquired(s.claim_by(1).await);
    s.release(1, ReleaseKind::Vacate).await;
    let grant = acquired(s.claim_by(2).await);
    answers!(s.release(2, ReleaseKind::MarkDead).await, Settled::Done, "{HELD}");
    let dead = Claim::Dead(Dead { attempts: 2, fencing: grant.fencing, error: "no stock".into() });
    answers!(s.claim_by(3).await, dead, "the key was buried, and stays so");
    answers!(s.claim_by(2).await, dead, "the key was buried, and stays so");
}
