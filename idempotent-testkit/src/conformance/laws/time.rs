//! Laws about retention: an expired record counts as absent for all operations.
use std::time::Duration;

use idempotent_core::{Claim, ClaimRequest, Release, ReleaseKind, Settled, StateKind};

use crate::conformance::Subject;
use crate::conformance::answers::{FIRST_RESULT, HELD, NOT_HELD, answers, answers_like};
use crate::conformance::subject::{HOUR, MS, acquired, done, lost, must, put_down};

/// Checks that the state lasts for exactly `span` from now, and is absent for every caller after that.
async fn lasts(s: &Subject, state: StateKind, span: Duration) {
    answers!(s.state().await, state, "the state lasts from now on");
    if s.pass_almost(span).await {
        answers!(s.state().await, state, "a ms before its time");
        s.pass(MS).await;
    } else {
        s.pass(span).await;
    }
    answers!(s.peek().await, None, "a {state} record past its time is hidden");
    answers!(s.complete(1, b"late").await, lost(StateKind::Absent), "{NOT_HELD}");
    answers!(s.renew(1, HOUR).await, lost(StateKind::Absent), "{NOT_HELD}");
    answers!(s.release(1, ReleaseKind::Delete).await, lost(StateKind::Absent), "{NOT_HELD}");
    let grant = acquired(s.claim(&ClaimRequest { max_attempts: 1, ..s.ask(9) }).await);
    answers!((grant.attempt, grant.taken_over), (1, None), "no state is retained");
}

pub async fn a_consumed_key_is_kept_for_its_retention_and_no_longer(s: &Subject) {
    acquired(s.claim_by(1).await);
    // The retention counts from the completion, and may be shorter than the rest of the lease.
    s.pass(s.lease() / 3).await;
    let retain = s.lease() / 2;
    answers!(must("complete", s.store.complete(&s.held(1), &done(b"v", retain)).await), Settled::Done, "{HELD}");
    answers_like!(s.claim_by(2).await, Claim::Consumed(_), "{FIRST_RESULT}");
    lasts(s, StateKind::Consumed, retain).await;
}

pub async fn an_unlimited_retention_does_not_end(s: &Subject) {
    acquired(s.claim_by(1).await);
    answers!(must("complete", s.store.complete(&s.held(1), &done(b"v", Duration::MAX)).await), Settled::Done, "{HELD}");
    if let Some(clock) = &s.clock {
        clock.jump(Duration::from_secs(100 * 365 * 86_400));
        clock.settle().await;
    }
    answers_like!(s.claim_by(2).await, Claim::Consumed(_), "{FIRST_RESULT}");
}

pub async fn a_failed_key_is_kept_for_its_retention_and_no_longer(s: &Subject) {
    acquired(s.claim_by(1).await);
    s.release_as(1, &Release { retention: s.lease(), ..put_down(ReleaseKind::MarkFailed) }).await;
    lasts(s, StateKind::Failed, s.lease()).await;
}

pub async fn a_dead_key_is_kept_for_its_retention_and_no_longer(s: &Subject) {
    acquired(s.claim_by(1).await);
    s.release_as(1, &Release { retention: s.lease(), ..put_down(ReleaseKind::MarkDead) }).await;
    lasts(s, StateKind::Dead, s.lease()).await;
}

pub async fn a_vacant_key_is_kept_for_its_retention_after_its_delay(s: &Subject) {
    acquired(s.claim_by(1).await);
    let span = s.lease();
    s.release_as(1, &Release { delay: span, retention: span, ..put_down(ReleaseKind::Vacate) }).await;
    lasts(s, StateKind::Vacant, span * 2).await;
}

pub async fn an_orphaned_key_is_absent_after_lease_and_retention(s: &Subject) {
    let ask = ClaimRequest { retention: s.lease(), ..s.ask(1) };
    acquired(s.claim(&ask).await);
    lasts(s, StateKind::Consuming, s.lease() * 2).await;
}

pub async fn a_renewed_key_keeps_its_retention(s: &Subject) {
    let ask = ClaimRequest { retention: s.lease(), ..s.ask(1) };
    acquired(s.claim(&ask).await);
    s.pass(s.lease() / 2).await;
    answers!(s.renew(1, s.lease()).await, Settled::Done, "{HELD}");
    lasts(s, StateKind::Consuming, s.lease() * 2).await;
}
