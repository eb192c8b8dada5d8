//! Laws about lost requests and replies: a repeated call with the same owner token gets the same answer.
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use idempotent_core::{Claim, ClaimRequest, Consumed, Release, ReleaseKind, Settled, State, StateKind, StoreError};

use crate::StoreOperation;
use crate::conformance::answers::{FIRST_RESULT, HELD, IN_FLIGHT, NOT_HELD, answers, answers_like};
use crate::conformance::lose::LostPart;
use crate::conformance::subject::{HOUR, HeldBy, MS, Subject, VERDICTS, acquired, done, lost, must, put_down};

pub async fn a_claim_with_a_lost_response_receives_the_same_grant_on_retry(s: &Subject) {
    let ask = ClaimRequest { max_attempts: 1, ..s.ask(1) };
    s.lost(StoreOperation::Claim, LostPart::Reply, s.store.claim(&ask)).await;
    let before = s.peek().await.expect("it was applied before the reply was lost");
    s.pass(MS).await;
    let grant = acquired(s.claim(&ask).await);
    answers!((grant.fencing, grant.attempt, grant.lease), (before.fencing, 1, ask.lease), "the run it was given");
    answers!(s.peek().await, Some(before), "asking again counts nothing and extends nothing");
    answers_like!(s.claim_by(2).await, Claim::InFlight(_), "the key is held since the first claim");
    // The grant of a takeover is repeated, too, with the owner that was taken over.
    s.pass(s.lease()).await;
    s.lost(StoreOperation::Claim, LostPart::Reply, s.store.claim(&s.ask(3))).await;
    let over = acquired(s.claim_by(3).await);
    answers!(
        (over.attempt, over.taken_over),
        (2, Some(grant.fencing)),
        "a takeover with a lost reply is answered again unchanged"
    );
}

pub async fn a_claim_with_a_lost_request_is_granted_on_retry(s: &Subject) {
    for (key, at) in [("connection", LostPart::Connection), ("request", LostPart::Request)] {
        let ask = s.ask_on(key, 1);
        s.lost(StoreOperation::Claim, at, s.store.claim(&ask)).await;
        answers!(must("peek", s.store.peek(&ask.key).await), None, "nothing was to be done: {at:?}");
        answers!(acquired(s.claim(&ask).await).attempt, 1, "a claim that never arrived counts nothing");
    }
}

pub async fn a_completion_with_a_lost_response_is_done_on_retry(s: &Subject) {
    let grant = acquired(s.claim_by(1).await);
    s.lost(StoreOperation::Complete, LostPart::Reply, s.store.complete(&s.held(1), &done(b"first", HOUR))).await;
    let before = s.peek().await.expect("it was applied before the reply was lost");
    answers!(before.state.kind(), StateKind::Consumed, "a completion whose reply is lost was done all the same");
    s.pass(MS).await;
    answers!(
        s.complete(1, b"second").await,
        Settled::Done,
        "the completion was done, its reply was lost, and it comes again"
    );
    answers!(s.peek().await, Some(before), "the first result stays, for its retention");
    let kept = Claim::Consumed(Consumed { fencing: grant.fencing, value: Some(b"first"[..].into()) });
    answers!(s.claim_by(2).await, kept, "{FIRST_RESULT}");
}

pub async fn a_completion_with_a_lost_request_is_done_on_retry(s: &Subject) {
    for (key, at) in [("connection", LostPart::Connection), ("request", LostPart::Request)] {
        let held = s.ask_on(key, 1).held();
        acquired(s.claim(&s.ask_on(key, 1)).await);
        s.lost(StoreOperation::Complete, at, s.store.complete(&held, &done(b"lost", HOUR))).await;
        let record = must("peek", s.store.peek(&held.key).await).expect("still held");
        answers!(record.state.kind(), StateKind::Consuming, "nothing was to be done: {at:?}");
        answers!(must("complete", s.store.complete(&held, &done(b"again", HOUR)).await), Settled::Done, "{HELD}");
        let Claim::Consumed(kept) = s.claim(&s.ask_on(key, 2)).await else { panic!("not consumed") };
        answers!(kept.value.as_deref(), Some(&b"again"[..]), "the completion that arrived is the result");
    }
}

pub async fn a_renewal_with_a_lost_response_may_be_repeated(s: &Subject) {
    acquired(s.claim_by(1).await);
    s.lost(StoreOperation::Renew, LostPart::Reply, s.store.renew(&s.held(1), HOUR)).await;
    let before = s.peek().await.expect("held");
    answers!(s.renew(1, s.lease()).await, Settled::Done, "{HELD}");
    let after = s.peek().await.expect("held");
    let until = |state: &State| match state {
        State::Consuming { until, .. } => *until,
        other => panic!("a key that is held and was renewed is {other:?}, the protocol says consuming"),
    };
    answers!(until(&after.state), until(&before.state), "the lease of the lost renewal is not shortened");
    answers!(
        (after.fencing, after.attempt),
        (before.fencing, before.attempt),
        "a renewal leaves number and attempt as they are"
    );
}

/// Checks that the run is over in both cases, and that the following calls have the same answers.
pub async fn a_release_with_a_lost_response_is_applied_once(s: &Subject) {
    let held = s.held(1);
    acquired(s.claim_by(1).await);
    let vacate = Release { delay: s.lease(), ..put_down(ReleaseKind::Vacate) };
    s.lost(StoreOperation::Release, LostPart::Reply, s.store.release(&held, &vacate)).await;
    let before = s.peek().await;
    s.pass(MS).await;
    answers!(
        s.release_as(1, &vacate).await,
        lost(StateKind::Vacant),
        "the release was done, its reply was lost, and there is nothing left to release"
    );
    answers!(s.peek().await, before, "the delay does not start again");
    s.pass(s.lease()).await;
    answers!(
        acquired(s.claim_by(2).await).attempt,
        2,
        "a release that comes again is applied once: the next run is attempt 2"
    );
}

/// Sends a delayed copy when its run is over, and after others have had the key.
pub async fn a_late_copy_of_a_call_changes_nothing_of_another_run(s: &Subject) {
    acquired(s.claim_by(1).await);
    answers!(s.release(1, ReleaseKind::Vacate).await, Settled::Done, "{HELD}");
    acquired(s.claim_by(2).await);
    let before = s.peek().await;
    answers_like!(s.claim_by(1).await, Claim::InFlight(_), "the first claim, again: another one holds the key by now");
    answers!(s.renew(1, HOUR).await, lost(StateKind::Consuming), "{NOT_HELD}");
    answers!(s.complete(1, b"late").await, lost(StateKind::Consuming), "{NOT_HELD}");
    for verdict in VERDICTS {
        answers!(s.release(1, verdict).await, lost(StateKind::Consuming), "{verdict:?}");
    }
    answers!(s.peek().await, before, "this changes nothing of the record");
    answers!(s.complete(2, b"second").await, Settled::Done, "{HELD}");
    let before = s.peek().await;
    for owner in [1, 2] {
        answers_like!(s.claim_by(owner).await, Claim::Consumed(_), "a claim that comes after the completion");
        answers!(s.release(owner, ReleaseKind::Delete).await, lost(StateKind::Consumed), "{NOT_HELD}");
    }
    answers!(s.complete(1, b"late").await, lost(StateKind::Consumed), "{NOT_HELD}");
    answers!(s.peek().await, before, "this changes nothing of the record");
}

/// Drops a call at each await. Like after a lost reply, it is unknown whether the call was applied, and it may be applied after it was dropped. Each
/// step therefore has its own key: a claim that arrives after its run has ended is granted, which is correct.
pub async fn a_dropped_call_is_settled_by_its_repetition(s: &Subject) {
    for polls in 0..10 {
        let on = |step: &str, owner| ClaimRequest { lease: HOUR, ..s.ask_on(&format!("{step} {polls}"), owner) };
        dropped_after(polls, s.store.claim(&on("claim", 1))).await;
        let grant = acquired(s.claim(&on("claim", 1)).await);
        answers!(grant.attempt, 1, "a claim dropped after {polls} polls was counted");
        answers_like!(s.claim(&on("claim", 2)).await, Claim::InFlight(_), "{IN_FLIGHT}");

        let (held, vacate) = (on("release", 1).held(), put_down(ReleaseKind::Vacate));
        acquired(s.claim(&on("release", 1)).await);
        dropped_after(polls, s.store.release(&held, &vacate)).await;
        let released = must("release", s.store.release(&held, &vacate).await);
        answers_like!(released, Settled::Done | Settled::Lost { now: StateKind::Vacant }, "{released:?}");
        answers!(
            acquired(s.claim(&on("release", 2)).await).attempt,
            2,
            "a release that comes again is applied once: the next run is attempt 2"
        );

        let held = on("complete", 1).held();
        acquired(s.claim(&on("complete", 1)).await);
        dropped_after(polls, s.store.complete(&held, &done(b"v", HOUR))).await;
        answers!(must("complete", s.store.complete(&held, &done(b"v", HOUR)).await), Settled::Done, "{HELD}");
        answers_like!(s.claim(&on("complete", 2)).await, Claim::Consumed(_), "{FIRST_RESULT}");
    }
}

async fn dropped_after<T>(polls: u32, call: impl Future<Output = Result<T, StoreError>>) {
    let mut call = pin!(call);
    for _ in 0..polls {
        if let Poll::Ready(answer) = call.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            must("a call that was not dropped in time", answer);
            return;
        }
        // Time for a store that works on other threads.
        tokio::time::sleep(Duration::from_micros(100)).await;
    }
}

/// Checks that an unknown result is never reported as "not applied": the executor would retry the message at once.
pub async fn a_lost_response_is_ambiguous_and_a_refused_call_is_not(s: &Subject) {
    s.can_lose();
    let says = async |verb: StoreOperation, at: LostPart, error: Option<StoreError>| {
        let error = error.expect("a subject that can lose calls shows their errors");
        assert!(at.may_be(error.kind()), "{verb:?} lost ({at:?}) is called {:?}: {error}", error.kind());
        assert!(error.is_worth_a_retry());
    };
    for at in LostPart::ALL {
        let ask = ClaimRequest { lease: HOUR, ..s.ask_on(&format!("{at:?}"), 1) };
        let held = ask.held();
        says(StoreOperation::Claim, *at, s.lost(StoreOperation::Claim, *at, s.store.claim(&ask)).await).await;
        let grant = acquired(s.claim(&ask).await);
        answers!(grant.attempt, 1, "attempts are counted at the claim");
        says(StoreOperation::Renew, *at, s.lost(StoreOperation::Renew, *at, s.store.renew(&held, HOUR)).await).await;
        let vacate = put_down(ReleaseKind::Refund);
        says(StoreOperation::Release, *at, s.lost(StoreOperation::Release, *at, s.store.release(&held, &vacate)).await)
            .await;
        acquired(s.claim(&ask).await);
        says(
            StoreOperation::Complete,
            *at,
            s.lost(StoreOperation::Complete, *at, s.store.complete(&held, &done(b"v", HOUR))).await,
        )
        .await;
        answers!(must("complete", s.store.complete(&held, &done(b"v", HOUR)).await), Settled::Done, "{at:?}");
    }
}
