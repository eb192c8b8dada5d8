//! Laws about owners: every later operation is guarded by owner and state, and a superseded owner gets the current
//! state.
use idempotent_core::{
    Claim, ClaimHandle, ClaimRequest, Consumed, Grant, Release, ReleaseKind, Settled, State, StateKind,
};

use crate::conformance::Subject;
use crate::conformance::answers::{FIRST_RESULT, HELD, IN_FLIGHT, NOT_HELD, answers, answers_like};
use crate::conformance::subject::{HOUR, HeldBy, MS, VERDICTS, acquired, done, lost, put_down};
use crate::entropy::Dice;

/// Checks that every operation of `owner` is lost to `now`, and that the record does not change.
async fn is_lost(s: &Subject, owner: u128, now: StateKind, what: &str) {
    let before = s.peek().await;
    answers!(s.renew(owner, HOUR).await, lost(now), "renew, {what}");
    answers!(s.complete(owner, b"foreign").await, lost(now), "complete, {what}");
    for verdict in VERDICTS {
        answers!(s.release(owner, verdict).await, lost(now), "release as {verdict:?}, {what}");
    }
    answers!(s.peek().await, before, "a superseded owner changed the record, {what}");
}

pub async fn only_the_owner_changes_a_held_key(s: &Subject) {
    is_lost(s, 2, StateKind::Absent, "nothing is there").await;
    acquired(s.claim_by(1).await);
    is_lost(s, 2, StateKind::Consuming, "held by another").await;
    // Owners that a store might confuse: they differ in one bit at either end, or share one half.
    for owner in [0, 1 << 127 | 1, 1 << 64 | 1, u128::MAX] {
        is_lost(s, owner, StateKind::Consuming, "held by another").await;
    }
    answers!(s.complete(1, b"v").await, Settled::Done, "{HELD}");
}

pub async fn a_settled_key_is_not_changed(s: &Subject) {
    acquired(s.claim_by(1).await);
    s.release(1, ReleaseKind::Vacate).await;
    is_lost(s, 2, StateKind::Vacant, "vacant").await;
    is_lost(s, 1, StateKind::Vacant, "vacated by itself").await;
    acquired(s.claim_by(3).await);
    s.complete(3, b"first").await;
    is_lost(s, 2, StateKind::Consumed, "consumed by another").await;
    for (name, verdict, state) in
        [("f", ReleaseKind::MarkFailed, StateKind::Failed), ("d", ReleaseKind::MarkDead, StateKind::Dead)]
    {
        let ask = ClaimRequest { key: s.key(name), ..s.ask(1) };
        acquired(s.claim(&ask).await);
        s.store.release(&ask.held(), &put_down(verdict)).await.unwrap();
        for owner in [1, 2] {
            let held = ClaimRequest { owner: idempotent_core::OwnerToken(owner), ..ask.clone() }.held();
            answers!(s.store.renew(&held, HOUR).await.unwrap(), lost(state), "{name}");
            answers!(s.store.release(&held, &put_down(ReleaseKind::Delete)).await.unwrap(), lost(state), "{name}");
        }
    }
}

pub async fn a_superseded_owner_receives_the_current_state_and_changes_nothing(s: &Subject) {
    acquired(s.claim_by(1).await);
    s.pass(s.lease()).await;
    let over = acquired(s.claim_by(2).await);
    is_lost(s, 1, StateKind::Consuming, "taken over").await;
    answers_like!(s.claim_by(1).await, Claim::InFlight(_), "its old token is a stranger's");
    answers!(s.complete(2, b"second").await, Settled::Done, "{HELD}");
    is_lost(s, 1, StateKind::Consumed, "taken over and consumed").await;
    let kept = Claim::Consumed(Consumed { fencing: over.fencing, value: Some(b"second"[..].into()) });
    answers!(s.claim_by(3).await, kept, "{FIRST_RESULT}");
}

/// Covers a delayed copy of the first owner's claim, which is granted once the key is free again: the same owner token, but another
/// grant. The first run has the fencing token of the first grant.
pub async fn a_superseded_grant_stays_superseded_after_a_repeated_claim(s: &Subject) {
    let first = acquired(s.claim_by(1).await);
    s.pass(s.lease()).await;
    acquired(s.claim_by(2).await);
    answers!(s.release(2, ReleaseKind::Vacate).await, Settled::Done, "{HELD}");
    let again = acquired(s.claim_by(1).await);
    let held = |grant: &Grant| ClaimHandle { fencing: Some(grant.fencing), ..s.held(1) };
    let (old, before) = (held(&first), s.peek().await);
    answers!(s.store.renew(&old, HOUR).await.unwrap(), lost(StateKind::Consuming), "{NOT_HELD}");
    answers!(s.store.complete(&old, &done(b"old", HOUR)).await.unwrap(), lost(StateKind::Consuming), "{NOT_HELD}");
    for verdict in VERDICTS {
        answers!(s.store.release(&old, &put_down(verdict)).await.unwrap(), lost(StateKind::Consuming), "{NOT_HELD}");
    }
    answers!(s.peek().await, before, "the record does not change, and the first result stays");
    answers!(s.store.renew(&held(&again), HOUR).await.unwrap(), Settled::Done, "{HELD}");
    answers!(s.store.complete(&held(&again), &done(b"new", HOUR)).await.unwrap(), Settled::Done, "{HELD}");
    answers!(s.store.complete(&held(&again), &done(b"new", HOUR)).await.unwrap(), Settled::Done, "asked again");
    answers!(s.store.complete(&old, &done(b"old", HOUR)).await.unwrap(), lost(StateKind::Consumed), "{NOT_HELD}");
}

pub async fn a_late_owner_may_settle_before_a_takeover(s: &Subject) {
    let ask = |name, owner| ClaimRequest { key: s.key(name), ..s.ask(owner) };
    for name in ["complete", "renew", "release"] {
        acquired(s.claim(&ask(name, 1)).await);
    }
    s.pass(s.lease() * 2).await;
    let completed = s.store.complete(&ask("complete", 1).held(), &done(b"v", HOUR)).await;
    answers!(completed.unwrap(), Settled::Done, "{HELD}");
    answers_like!(s.claim(&ask("complete", 2)).await, Claim::Consumed(_), "{FIRST_RESULT}");
    answers!(s.store.renew(&ask("renew", 1).held(), s.lease()).await.unwrap(), Settled::Done, "{HELD}");
    answers_like!(s.claim(&ask("renew", 2)).await, Claim::InFlight(_), "{IN_FLIGHT}");
    let released = s.store.release(&ask("release", 1).held(), &put_down(ReleaseKind::Vacate)).await;
    answers!(released.unwrap(), Settled::Done, "{HELD}");
    acquired(s.claim(&ask("release", 2)).await);
}

pub async fn a_completion_repeated_by_its_owner_is_done_and_keeps_the_first_result(s: &Subject) {
    let grant = acquired(s.claim_by(1).await);
    answers!(s.complete(1, b"first").await, Settled::Done, "{HELD}");
    let before = s.peek().await;
    s.pass(MS).await;
    answers!(s.complete(1, b"second").await, Settled::Done, "a completion that comes again from its owner is done");
    answers!(s.peek().await, before, "the record does not change, and the first result stays");
    let kept = Claim::Consumed(Consumed { fencing: grant.fencing, value: Some(b"first"[..].into()) });
    answers!(s.claim_by(2).await, kept, "{FIRST_RESULT}");
}

/// Covers a trap: a completion with a lost reply is mistaken for a failure, and then released with the right owner token.
pub async fn a_consumed_key_is_not_undone_by_its_owner(s: &Subject) {
    acquired(s.claim_by(1).await);
    s.complete(1, b"v").await;
    let before = s.peek().await;
    answers!(s.renew(1, HOUR).await, lost(StateKind::Consumed), "{NOT_HELD}");
    for verdict in VERDICTS {
        answers!(s.release(1, verdict).await, lost(StateKind::Consumed), "{verdict:?}");
    }
    answers!(s.peek().await, before, "the record does not change, and the first result stays");
}

pub async fn a_release_repeated_by_its_owner_is_lost(s: &Subject) {
    for (verdict, now) in [
        (ReleaseKind::Delete, StateKind::Absent),
        (ReleaseKind::Vacate, StateKind::Vacant),
        (ReleaseKind::Refund, StateKind::Vacant),
        (ReleaseKind::MarkFailed, StateKind::Failed),
        (ReleaseKind::MarkDead, StateKind::Dead),
    ] {
        let ask = ClaimRequest { key: s.key(&format!("{verdict:?}")), ..s.ask(1) };
        acquired(s.claim(&ask).await);
        let release = Release { delay: MS, ..put_down(verdict) };
        answers!(s.store.release(&ask.held(), &release).await.unwrap(), Settled::Done, "{HELD}");
        let before = s.store.peek(&ask.key).await.unwrap();
        answers!(s.store.release(&ask.held(), &release).await.unwrap(), lost(now), "{verdict:?}");
        answers!(s.store.peek(&ask.key).await.unwrap(), before, "{verdict:?}");
    }
}

pub async fn a_renewal_counts_from_now(s: &Subject) {
    acquired(s.claim_by(1).await);
    for _ in 0..3 {
        s.pass(s.lease() * 2 / 3).await;
        answers!(s.renew(1, s.lease()).await, Settled::Done, "{HELD}");
        answers_like!(s.claim_by(2).await, Claim::InFlight(_), "{IN_FLIGHT}");
    }
    if s.pass_almost(s.lease()).await {
        answers_like!(s.claim_by(2).await, Claim::InFlight(_), "{IN_FLIGHT}");
    }
    s.pass(s.lease()).await;
    answers!(acquired(s.claim_by(2).await).attempt, 2, "a renewal counts no attempt");
}

pub async fn a_renewal_never_shortens(s: &Subject) {
    async fn until(s: &Subject) -> idempotent_core::Timestamp {
        match s.peek().await.expect("consuming").state {
            State::Consuming { until, .. } => until,
            other => panic!("{other:?}"),
        }
    }
    acquired(s.claim_by(1).await);
    let first = until(s).await;
    answers!(s.renew(1, s.lease() / 3).await, Settled::Done, "{HELD}");
    answers!(until(s).await, first, "a renewal never shortens a lease");
    answers!(s.renew(1, HOUR).await, Settled::Done, "{HELD}");
    let longer = until(s).await;
    assert!(longer > first);
    answers!(s.renew(1, s.lease()).await, Settled::Done, "{HELD}");
    answers!(until(s).await, longer, "a renewal never shortens a lease");
}

/// Checks that a record that is gone is not written again by operations of its last owner.
pub async fn a_deleted_key_is_not_restored(s: &Subject) {
    let brief = |name, owner| ClaimRequest { retention: s.lease(), ..s.ask_on(name, owner) };
    let mut gone = Vec::new();
    for name in ["deleted", "past its retention", "past lease and memory"] {
        let grant = acquired(s.claim(&brief(name, 1)).await);
        gone.push((name, brief(name, 1).held(), ClaimHandle { fencing: Some(grant.fencing), ..brief(name, 1).held() }));
    }
    s.store.release(&gone[0].1, &put_down(ReleaseKind::Delete)).await.unwrap();
    s.store.complete(&gone[1].1, &done(b"v", s.lease())).await.unwrap();
    s.pass(s.lease() * 2).await;
    for (name, unanswered, held) in gone {
        for held in [&unanswered, &held] {
            answers!(s.store.renew(held, HOUR).await.unwrap(), lost(StateKind::Absent), "{name}");
            answers!(s.store.complete(held, &done(b"late", HOUR)).await.unwrap(), lost(StateKind::Absent), "{name}");
            for verdict in VERDICTS {
                let released = s.store.release(held, &put_down(verdict)).await.unwrap();
                answers!(released, lost(StateKind::Absent), "{name}, {verdict:?}");
            }
            answers!(s.store.peek(&held.key).await.unwrap(), None, "{name}: brought back");
        }
        answers!(acquired(s.claim(&brief(name, 2)).await).attempt, 1, "{name}");
    }
}

/// Checks that a key is granted once, and once more after each expired lease and each release by its owner, but for no other
/// reason.
pub async fn each_grant_has_a_cause(s: &Subject) {
    let mut dice = Dice::new(1);
    let (mut holder, mut lapsed, mut grants) = (None, false, 0);
    // In real time, the law does not wait for leases.
    let lease = if s.clock.is_some() { s.lease() } else { HOUR };
    let ask = |owner| ClaimRequest { lease, ..s.ask(owner) };
    for owner in 1..=300 {
        let claim = s.claim(&ask(owner)).await;
        let free = holder.is_none() || lapsed;
        answers!(matches!(claim, Claim::Acquired(_)), free, "claim {owner} after {grants} grants: {claim:?}");
        if free {
            (holder, lapsed, grants) = (Some(owner), false, grants + 1);
        }
        let at = holder.unwrap_or(owner);
        match dice.below(8) {
            0 => answers!(s.release(at, ReleaseKind::Delete).await, Settled::Done, "{HELD}"),
            1 => answers!(s.release(at, ReleaseKind::Vacate).await, Settled::Done, "{HELD}"),
            2 if let Some(clock) = &s.clock => {
                clock.jump(s.lease());
                lapsed = true;
                continue;
            }
            3 => answers!(acquired(s.claim(&ask(at)).await).lease, lease, "asking again is no run"),
            4 => answers!(s.complete(owner + 1_000, b"foreign").await, lost(StateKind::Consuming), "{NOT_HELD}"),
            5 => {
                answers!(s.release(owner + 1_000, ReleaseKind::Delete).await, lost(StateKind::Consuming), "{NOT_HELD}")
            }
            6 => answers!(s.renew(owner + 1_000, HOUR).await, lost(StateKind::Consuming), "{NOT_HELD}"),
            _ => answers!(s.renew(at, lease).await, Settled::Done, "{HELD}"),
        }
        if s.state().await != StateKind::Consuming {
            holder = None;
        }
    }
    assert!(grants > 30, "only {grants} grants: nothing is shown");
    if let Some(at) = holder {
        answers!(s.release(at, ReleaseKind::Delete).await, Settled::Done, "{HELD}");
    }
    acquired(s.claim_by(9_999).await);
    answers!(s.complete(9_999, b"v").await, Settled::Done, "{HELD}");
    s.pass(s.lease()).await;
    answers_like!(s.claim_by(1).await, Claim::Consumed(_), "the end of a lease does not restore a consumed key");
}
