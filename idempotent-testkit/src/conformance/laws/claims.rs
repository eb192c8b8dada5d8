//! What a claim answers to each state of a key.
use std::sync::Arc;
use std::time::Duration;

use idempotent_core::{
    Claim, ClaimRequest, Completion, Consumed, Dead, Fingerprint, InFlight, OnExpiry, OwnerToken, Release, Settled,
    State, StateKind, Verdict,
};

use crate::conformance::Subject;
use crate::conformance::subject::{HOUR, HeldBy, MS, acquired, must, put_down};

pub async fn an_absent_key_is_acquired(s: &Subject) {
    assert_eq!(s.peek().await, None);
    let fingerprint = Some(Fingerprint::of_bytes("payload"));
    let ask = ClaimRequest { fingerprint, display: Some("o-17".into()), ..s.ask(1) };
    let grant = acquired(s.claim(&ask).await);
    assert_eq!((grant.attempt, grant.lease, grant.taken_over), (1, ask.lease, None));
    let record = s.peek().await.expect("a claimed key has a record");
    assert_eq!((record.fencing, record.attempt), (grant.fencing, 1));
    assert_eq!((record.fingerprint, record.display), (fingerprint, Some("o-17".into())));
    assert_eq!(record.first_seen, record.updated_at);
    let State::Consuming { owner, until, taken_over } = record.state else { panic!("{:?}", record.state) };
    assert_eq!((owner, taken_over), (OwnerToken(1), None));
    assert_eq!(until - record.updated_at, ask.lease);
    assert_eq!(record.expires_at - until, ask.memory, "the record outlives its lease by its memory");
    if let Some(clock) = &s.clock {
        assert_eq!(record.updated_at, idempotent_core::Clock::wall(clock), "the store's own clock counts");
    }
}

pub async fn a_held_key_is_in_flight_for_everybody_else(s: &Subject) {
    acquired(s.claim_by(1).await);
    s.pass(s.lease() / 3).await;
    let before = s.peek().await;
    match s.claim_by(2).await {
        // A store that cannot see into another's transaction may not know.
        Claim::InFlight(InFlight::Busy) => {}
        Claim::InFlight(InFlight::Leased { rest }) if s.clock.is_some() => assert_eq!(rest, s.lease() * 2 / 3),
        Claim::InFlight(InFlight::Leased { rest }) => assert!(!rest.is_zero() && rest < s.lease(), "{rest:?}"),
        other => panic!("{other:?}"),
    }
    assert_eq!(s.peek().await, before, "asking changes nothing");
}

pub async fn the_same_owner_claiming_again_gets_the_same_grant(s: &Subject) {
    let first = acquired(s.claim_by(1).await);
    let before = s.peek().await;
    assert_eq!(acquired(s.claim_by(1).await), first);
    assert_eq!(s.peek().await, before, "nothing is counted, nothing is extended");
    s.pass(s.lease()).await;
    let over = acquired(s.claim_by(2).await);
    assert_eq!(over.taken_over, Some(first.fencing));
    assert_eq!(acquired(s.claim_by(2).await), over, "also after a takeover");
}

pub async fn the_same_owner_may_claim_again_after_its_lease_while_nobody_took_over(s: &Subject) {
    let first = acquired(s.claim_by(1).await);
    s.pass(s.lease() * 2).await;
    assert_eq!(acquired(s.claim(&ClaimRequest { max_attempts: 1, ..s.ask(1) }).await), first);
}

pub async fn a_lease_holds_until_its_end_and_may_be_taken_over_from_then_on(s: &Subject) {
    let first = acquired(s.claim_by(1).await);
    if s.pass_almost(s.lease()).await {
        assert_eq!(s.claim_by(2).await, Claim::InFlight(InFlight::Leased { rest: MS }));
        s.pass(MS).await;
    } else {
        assert!(matches!(s.claim_by(2).await, Claim::InFlight(_)));
        s.pass(s.lease()).await;
    }
    let second = acquired(s.claim_by(3).await);
    assert_eq!((second.attempt, second.taken_over), (2, Some(first.fencing)));
    assert!(matches!(s.claim_by(4).await, Claim::InFlight(_)), "one takes over, no more");
}

pub async fn an_expired_lease_is_parked_if_asked(s: &Subject) {
    let grant = acquired(s.claim_by(1).await);
    let park = ClaimRequest { on_expiry: OnExpiry::Park, ..s.ask(2) };
    assert!(matches!(s.claim(&park).await, Claim::InFlight(_)), "not while it lasts");
    s.pass(s.lease()).await;
    let Claim::Dead(dead) = s.claim(&park).await else { panic!("a parked key is dead") };
    assert_eq!((dead.attempts, dead.fencing), (1, grant.fencing));
    assert_eq!(s.claim_by(3).await, Claim::Dead(dead), "for every later claim too");
    assert_eq!(s.state().await, StateKind::Dead);
}

pub async fn a_deleted_key_may_be_claimed_at_once_and_leaves_no_trace(s: &Subject) {
    acquired(s.claim_by(1).await);
    assert_eq!(s.release(1, Verdict::Delete).await, Settled::Done);
    assert_eq!(s.peek().await, None);
    let again = acquired(s.claim_by(2).await);
    assert_eq!((again.attempt, again.taken_over), (1, None));
}

pub async fn a_vacant_key_is_delayed_until_its_time_and_then_acquired(s: &Subject) {
    acquired(s.claim_by(1).await);
    let delay = s.lease();
    let vacate = Release { delay, ..put_down(Verdict::Vacate) };
    assert_eq!(s.release_as(1, &vacate).await, Settled::Done);
    let record = s.peek().await.expect("a vacant key has a record");
    assert_eq!(record.display, None, "what operators see of the key is not kept");
    let State::Vacant { error, not_before, .. } = record.state else { panic!("{:?}", record.state) };
    assert_eq!((&*error, not_before - record.updated_at), ("no stock", delay));
    if s.pass_almost(delay).await {
        assert_eq!(s.claim_by(2).await, Claim::Delayed { rest: MS });
        s.pass(MS).await;
    } else {
        assert!(matches!(s.claim_by(2).await, Claim::Delayed { .. }));
        s.pass(delay).await;
    }
    let grant = acquired(s.claim_by(2).await);
    assert_eq!((grant.attempt, grant.taken_over), (2, None), "a vacant key is nobody's to take over");
}

pub async fn a_consumed_key_answers_with_its_value(s: &Subject) {
    for (name, value) in [("some", Some(&b"v"[..])), ("empty", Some(&b""[..])), ("none", None)] {
        let ask = |owner| ClaimRequest { key: s.key(name), display: Some("shown".into()), ..s.ask(owner) };
        let grant = acquired(s.claim(&ask(1)).await);
        let value: Option<Arc<[u8]>> = value.map(Arc::from);
        let done = Completion { value: value.clone(), retain: HOUR };
        assert_eq!(must("complete", s.store.complete(&ask(1).held(), &done).await), Settled::Done);
        let consumed = Claim::Consumed(Consumed { fencing: grant.fencing, value });
        assert_eq!(s.claim(&ask(2)).await, consumed, "{name}");
        assert_eq!(s.claim(&ask(1)).await, consumed, "{name}: its owner too, there is nothing left to run");
        let record = must("peek", s.store.peek(&s.key(name)).await).expect("a consumed key has a record");
        assert_eq!((record.attempt, record.display), (1, None));
    }
}

pub async fn a_failed_key_answers_with_its_error(s: &Subject) {
    acquired(s.claim_by(1).await);
    assert_eq!(s.release(1, Verdict::Fail).await, Settled::Done);
    assert_eq!(s.claim_by(2).await, Claim::Failed { error: "no stock".into() });
    assert_eq!(s.claim_by(1).await, Claim::Failed { error: "no stock".into() });
    s.pass(Duration::from_millis(5)).await;
    assert_eq!(s.state().await, StateKind::Failed);
}

pub async fn a_dead_key_answers_with_its_attempts_and_error(s: &Subject) {
    acquired(s.claim_by(1).await);
    s.release(1, Verdict::Vacate).await;
    let grant = acquired(s.claim_by(2).await);
    assert_eq!(s.release(2, Verdict::Bury).await, Settled::Done);
    let dead = Claim::Dead(Dead { attempts: 2, fencing: grant.fencing, error: "no stock".into() });
    assert_eq!(s.claim_by(3).await, dead);
    assert_eq!(s.claim_by(2).await, dead);
}
