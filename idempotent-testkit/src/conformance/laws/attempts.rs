//! Laws about attempts. Runs are counted at the claim, so that a message that kills its process is also buried.
use idempotent_core::{Claim, ClaimRequest, Dead, FencingToken, Release, ReleaseKind, Settled, StateKind};

use crate::conformance::Subject;
use crate::conformance::answers::{HELD, IN_FLIGHT, NOT_HELD, answers, answers_like};
use crate::conformance::subject::{acquired, put_down};

fn limited(s: &Subject, owner: u128, max_attempts: u32) -> ClaimRequest {
    ClaimRequest { max_attempts, ..s.ask(owner) }
}

pub async fn attempts_are_counted_over_vacancy_and_takeover(s: &Subject) {
    answers!(acquired(s.claim_by(1).await).attempt, 1, "attempts are counted at the claim");
    s.release(1, ReleaseKind::Vacate).await;
    answers!(acquired(s.claim_by(2).await).attempt, 2, "attempts are counted at the claim");
    s.pass(s.lease()).await;
    answers!(acquired(s.claim_by(3).await).attempt, 3, "attempts are counted at the claim");
    s.release(3, ReleaseKind::Vacate).await;
    answers!(s.peek().await.expect("vacant").attempt, 3, "attempts are counted at the claim");
    let before = s.peek().await.expect("vacant").first_seen;
    answers!(acquired(s.claim_by(4).await).attempt, 4, "attempts are counted at the claim");
    answers!(s.peek().await.expect("consuming").first_seen, before, "first seen is kept over vacancy");
}

pub async fn a_refunded_attempt_is_not_counted(s: &Subject) {
    acquired(s.claim_by(1).await);
    answers!(s.release(1, ReleaseKind::Refund).await, Settled::Done, "{HELD}");
    for owner in 2..6 {
        answers!(acquired(s.claim(&limited(s, owner, 1)).await).attempt, 1, "attempts are counted at the claim");
        answers!(s.release(owner, ReleaseKind::Refund).await, Settled::Done, "{HELD}");
    }
    answers!(acquired(s.claim_by(6).await).attempt, 1, "attempts are counted at the claim");
    s.release(6, ReleaseKind::Vacate).await;
    answers!(acquired(s.claim_by(7).await).attempt, 2, "attempts are counted at the claim");
    s.release(7, ReleaseKind::Refund).await;
    answers!(acquired(s.claim_by(8).await).attempt, 2, "attempts are counted at the claim");
}

pub async fn a_refund_of_the_first_attempt_leaves_no_record(s: &Subject) {
    acquired(s.claim_by(1).await);
    answers!(s.release(1, ReleaseKind::Refund).await, Settled::Done, "{HELD}");
    answers!(s.peek().await, None, "nothing is there");
    acquired(s.claim_by(2).await);
    let delayed = Release { delay: s.lease(), ..put_down(ReleaseKind::Refund) };
    answers!(s.release_as(2, &delayed).await, Settled::Done, "{HELD}");
    answers!(
        s.peek().await.map(|record| (record.state.kind(), record.attempt)),
        Some((StateKind::Vacant, 0)),
        "attempts are counted at the claim"
    );
}

/// Checks that the next run is informed: the effect of the previous run may have happened.
pub async fn a_refunded_takeover_is_visible_to_the_next_run(s: &Subject) {
    let first = acquired(s.claim_by(1).await);
    s.pass(s.lease()).await;
    for owner in 2..5 {
        let grant = acquired(s.claim_by(owner).await);
        answers!(
            (grant.attempt, grant.taken_over),
            (2, Some(first.fencing)),
            "a takeover names the previous owner, and a first run does not"
        );
        answers!(s.release(owner, ReleaseKind::Refund).await, Settled::Done, "{HELD}");
    }
}

#[track_caller]
fn buried(claim: Claim, attempts: u32, fencing: FencingToken) -> Dead {
    let Claim::Dead(dead) = claim else { panic!("expected a dead key, got {claim:?}") };
    answers!(
        (dead.attempts, dead.fencing),
        (attempts, fencing),
        "a buried key keeps its attempts and the number of its last run"
    );
    dead
}

pub async fn a_vacant_key_without_attempts_left_is_dead(s: &Subject) {
    acquired(s.claim(&limited(s, 1, 2)).await);
    s.release(1, ReleaseKind::Vacate).await;
    let last = acquired(s.claim(&limited(s, 2, 2)).await);
    s.release(2, ReleaseKind::Vacate).await;
    let dead = buried(s.claim(&limited(s, 3, 2)).await, 2, last.fencing);
    answers!(&*dead.error, "no stock", "the last run's error is kept");
    answers!(s.state().await, StateKind::Dead, "the key was buried");
    answers!(s.claim_by(4).await, Claim::Dead(dead), "a claim without a limit does not revive it");
}

pub async fn an_expired_lease_without_attempts_left_is_dead(s: &Subject) {
    acquired(s.claim(&limited(s, 1, 2)).await);
    s.pass(s.lease()).await;
    let last = acquired(s.claim(&limited(s, 2, 2)).await);
    s.pass(s.lease()).await;
    let dead = buried(s.claim(&limited(s, 3, 2)).await, 2, last.fencing);
    assert!(!dead.error.is_empty(), "the answer shows that the lease of the last run expired");
    answers!(s.complete(2, b"v").await, Settled::Lost { now: StateKind::Dead }, "{NOT_HELD}");
}

pub async fn a_live_lease_on_its_last_attempt_is_in_flight(s: &Subject) {
    acquired(s.claim(&limited(s, 1, 1)).await);
    answers_like!(s.claim(&limited(s, 2, 1)).await, Claim::InFlight(_), "{IN_FLIGHT}");
    answers!(s.complete(1, b"v").await, Settled::Done, "{HELD}");
}

pub async fn without_a_limit_no_key_becomes_dead(s: &Subject) {
    for owner in 1..=20 {
        answers!(u128::from(acquired(s.claim_by(owner).await).attempt), owner, "attempts are counted at the claim");
        s.release(owner, ReleaseKind::Vacate).await;
    }
}

pub async fn a_dead_lettered_run_is_not_granted_again(s: &Subject) {
    let grant = acquired(s.claim(&limited(s, 1, 9)).await);
    answers!(s.release(1, ReleaseKind::MarkDead).await, Settled::Done, "{HELD}");
    s.pass(s.lease() * 2).await;
    let dead = buried(s.claim(&limited(s, 2, 9)).await, 1, grant.fencing);
    answers!(&*dead.error, "no stock", "the last run's error is kept");
}
