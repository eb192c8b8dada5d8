//! Laws about the same key with another payload: the state is checked first, then the fingerprint.
use idempotent_core::{Claim, ClaimRequest, Fingerprint, InFlight, Release, ReleaseKind};

use crate::conformance::Subject;
use crate::conformance::answers::{FIRST_RESULT, IN_FLIGHT, answers, answers_like};
use crate::conformance::subject::{HOUR, HeldBy, acquired, done, put_down};

fn with(s: &Subject, owner: u128, payload: &str) -> ClaimRequest {
    ClaimRequest { fingerprint: Some(Fingerprint::of_bytes(payload)), ..s.ask(owner) }
}

pub async fn another_payload_is_a_mismatch_while_the_key_is_held_or_settled(s: &Subject) {
    for (name, verdict) in [("consumed", None), ("failed", Some(ReleaseKind::MarkFailed))] {
        let on = |owner, payload| ClaimRequest { key: s.key(name), ..with(s, owner, payload) };
        acquired(s.claim(&on(1, "a")).await);
        answers!(s.claim(&on(2, "b")).await, Claim::Mismatch, "held");
        let held = on(1, "a").held();
        match verdict {
            None => s.store.complete(&held, &done(b"v", HOUR)).await.unwrap(),
            Some(verdict) => s.store.release(&held, &put_down(verdict)).await.unwrap(),
        };
        let before = s.store.peek(&s.key(name)).await.unwrap();
        answers!(s.claim(&on(2, "b")).await, Claim::Mismatch, "{name}");
        answers!(s.store.peek(&s.key(name)).await.unwrap(), before, "{name}: a mismatch changes nothing");
    }
}

pub async fn an_equal_or_unknown_fingerprint_is_no_mismatch(s: &Subject) {
    acquired(s.claim(&with(s, 1, "a")).await);
    answers_like!(
        s.claim(&with(s, 2, "a")).await,
        Claim::InFlight(InFlight::Leased { .. } | InFlight::Busy),
        "{IN_FLIGHT}"
    );
    answers_like!(s.claim_by(2).await, Claim::InFlight(_), "a claim without a fingerprint");
    s.complete(1, b"v").await;
    answers_like!(s.claim(&with(s, 2, "a")).await, Claim::Consumed(_), "{FIRST_RESULT}");
    answers_like!(s.claim_by(2).await, Claim::Consumed(_), "{FIRST_RESULT}");
    let bare = |owner| ClaimRequest { key: s.key("bare"), ..s.ask(owner) };
    acquired(s.claim(&bare(1)).await);
    let fingerprint = Some(Fingerprint::of_bytes("a"));
    let claim = s.claim(&ClaimRequest { fingerprint, ..bare(2) }).await;
    answers_like!(claim, Claim::InFlight(_), "a record without a fingerprint: {claim:?}");
}

pub async fn a_vacant_key_takes_the_new_fingerprint(s: &Subject) {
    acquired(s.claim(&with(s, 1, "a")).await);
    s.release(1, ReleaseKind::Vacate).await;
    answers!(
        acquired(s.claim(&with(s, 2, "b")).await).attempt,
        2,
        "a vacant key takes another payload as its next attempt"
    );
    answers!(
        s.claim(&with(s, 3, "a")).await,
        Claim::Mismatch,
        "the key was granted again with payload b, so payload a is a mismatch now"
    );
}

pub async fn an_expired_lease_takes_the_new_fingerprint(s: &Subject) {
    let first = acquired(s.claim(&with(s, 1, "a")).await);
    s.pass(s.lease()).await;
    answers!(
        acquired(s.claim(&with(s, 2, "b")).await).taken_over,
        Some(first.fencing),
        "a takeover names the previous owner, and a first run does not"
    );
    answers!(
        s.claim(&with(s, 3, "a")).await,
        Claim::Mismatch,
        "the key was granted again with payload b, so payload a is a mismatch now"
    );
}

pub async fn a_dead_key_is_dead_for_every_payload(s: &Subject) {
    acquired(s.claim(&with(s, 1, "a")).await);
    s.release(1, ReleaseKind::MarkDead).await;
    answers_like!(
        s.claim(&with(s, 2, "b")).await,
        Claim::Dead(_),
        "state first, then the fingerprint: a dead key is dead for every payload"
    );
}

pub async fn a_delayed_key_is_delayed_for_every_payload(s: &Subject) {
    acquired(s.claim(&with(s, 1, "a")).await);
    s.release_as(1, &Release { delay: s.lease(), ..put_down(ReleaseKind::Vacate) }).await;
    answers_like!(
        s.claim(&with(s, 2, "b")).await,
        Claim::Delayed { .. },
        "state first, then the fingerprint: a delayed key is delayed for every payload"
    );
}
