//! Runs are counted at the claim, so that a message that kills its process is buried too.
use idempotent_core::{Claim, ClaimRequest, Dead, Fencing, Release, Settled, StateKind, Verdict};

use crate::conformance::Subject;
use crate::conformance::subject::{acquired, put_down};

fn limited(s: &Subject, owner: u128, max_attempts: u32) -> ClaimRequest {
    ClaimRequest { max_attempts, ..s.ask(owner) }
}

pub async fn attempts_are_counted_over_vacancy_and_takeover(s: &Subject) {
    assert_eq!(acquired(s.claim_by(1).await).attempt, 1);
    s.release(1, Verdict::Vacate).await;
    assert_eq!(acquired(s.claim_by(2).await).attempt, 2);
    s.pass(s.lease()).await;
    assert_eq!(acquired(s.claim_by(3).await).attempt, 3);
    s.release(3, Verdict::Vacate).await;
    assert_eq!(s.peek().await.expect("vacant").attempt, 3);
    let before = s.peek().await.expect("vacant").first_seen;
    assert_eq!(acquired(s.claim_by(4).await).attempt, 4);
    assert_eq!(s.peek().await.expect("consuming").first_seen, before, "first seen is kept over vacancy");
}

pub async fn a_refunded_attempt_is_not_counted(s: &Subject) {
    acquired(s.claim_by(1).await);
    assert_eq!(s.release(1, Verdict::Refund).await, Settled::Done);
    for owner in 2..6 {
        assert_eq!(acquired(s.claim(&limited(s, owner, 1)).await).attempt, 1);
        assert_eq!(s.release(owner, Verdict::Refund).await, Settled::Done);
    }
    assert_eq!(acquired(s.claim_by(6).await).attempt, 1);
    s.release(6, Verdict::Vacate).await;
    assert_eq!(acquired(s.claim_by(7).await).attempt, 2);
    s.release(7, Verdict::Refund).await;
    assert_eq!(acquired(s.claim_by(8).await).attempt, 2);
}

pub async fn a_refund_with_nothing_to_remember_leaves_no_trace(s: &Subject) {
    acquired(s.claim_by(1).await);
    assert_eq!(s.release(1, Verdict::Refund).await, Settled::Done);
    assert_eq!(s.peek().await, None);
    acquired(s.claim_by(2).await);
    let delayed = Release { delay: s.lease(), ..put_down(Verdict::Refund) };
    assert_eq!(s.release_as(2, &delayed).await, Settled::Done);
    assert_eq!(s.peek().await.map(|record| (record.state.kind(), record.attempt)), Some((StateKind::Vacant, 0)));
}

/// Whoever is next has to know that the effect of the run before may have happened.
pub async fn a_refunded_takeover_is_told_to_the_next_run(s: &Subject) {
    let first = acquired(s.claim_by(1).await);
    s.pass(s.lease()).await;
    for owner in 2..5 {
        let grant = acquired(s.claim_by(owner).await);
        assert_eq!((grant.attempt, grant.taken_over), (2, Some(first.fencing)));
        assert_eq!(s.release(owner, Verdict::Refund).await, Settled::Done);
    }
}

#[track_caller]
fn buried(claim: Claim, attempts: u32, fencing: Fencing) -> Dead {
    let Claim::Dead(dead) = claim else { panic!("expected a dead key, got {claim:?}") };
    assert_eq!((dead.attempts, dead.fencing), (attempts, fencing));
    dead
}

pub async fn a_vacant_key_out_of_attempts_is_buried(s: &Subject) {
    acquired(s.claim(&limited(s, 1, 2)).await);
    s.release(1, Verdict::Vacate).await;
    let last = acquired(s.claim(&limited(s, 2, 2)).await);
    s.release(2, Verdict::Vacate).await;
    let dead = buried(s.claim(&limited(s, 3, 2)).await, 2, last.fencing);
    assert_eq!(&*dead.error, "no stock", "the last run's error is kept");
    assert_eq!(s.state().await, StateKind::Dead);
    assert_eq!(s.claim_by(4).await, Claim::Dead(dead), "a claim without a limit does not revive it");
}

pub async fn an_expired_lease_out_of_attempts_is_buried(s: &Subject) {
    acquired(s.claim(&limited(s, 1, 2)).await);
    s.pass(s.lease()).await;
    let last = acquired(s.claim(&limited(s, 2, 2)).await);
    s.pass(s.lease()).await;
    let dead = buried(s.claim(&limited(s, 3, 2)).await, 2, last.fencing);
    assert!(!dead.error.is_empty(), "it says that the last run let its lease run out");
    assert_eq!(s.complete(2, b"v").await, Settled::Lost { now: StateKind::Dead });
}

pub async fn a_live_lease_on_its_last_attempt_is_in_flight(s: &Subject) {
    acquired(s.claim(&limited(s, 1, 1)).await);
    assert!(matches!(s.claim(&limited(s, 2, 1)).await, Claim::InFlight(_)));
    assert_eq!(s.complete(1, b"v").await, Settled::Done);
}

pub async fn without_a_limit_nothing_is_buried(s: &Subject) {
    for owner in 1..=20 {
        assert_eq!(u128::from(acquired(s.claim_by(owner).await).attempt), owner);
        s.release(owner, Verdict::Vacate).await;
    }
}

pub async fn a_buried_run_is_not_granted_again(s: &Subject) {
    let grant = acquired(s.claim(&limited(s, 1, 9)).await);
    assert_eq!(s.release(1, Verdict::Bury).await, Settled::Done);
    s.pass(s.lease() * 2).await;
    let dead = buried(s.claim(&limited(s, 2, 9)).await, 1, grant.fencing);
    assert_eq!(&*dead.error, "no stock");
}
