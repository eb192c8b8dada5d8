//! Laws about ends to the ms: each period still holds a ms before its end, and no longer at its end or a ms after it,
//! at any moment within a second. A store that counts in seconds fails.
use std::time::Duration;

use idempotent_core::{Claim, ClaimRequest, InFlight, Release, ReleaseKind, Settled, StateKind};

use crate::conformance::answers::{HELD, answers, answers_like};
use crate::conformance::subject::{HOUR, HeldBy, MS, Subject, acquired, done, must, put_down};

/// Moments within a second.
const MOMENTS: [Duration; 4] = [Duration::ZERO, MS, Duration::from_millis(437), Duration::from_millis(999)];

/// Runs `begin` at some moment, and checks a ms before the end of `span`, at its end, and a ms after it, each with a
/// separate key.
async fn at_the_end_of(
    s: &Subject,
    span: Duration,
    begin: impl AsyncFn(&str),
    ask: impl AsyncFn(&str, /* it has ended */ bool),
) {
    let clock = s.exact_clock();
    for moment in MOMENTS {
        clock.jump(moment);
        let key = |name: &str| format!("{name}, {moment:?} {span:?}");
        for name in ["before", "at", "after"] {
            begin(&key(name)).await;
        }
        clock.jump(span - MS);
        ask(&key("before"), false).await;
        clock.jump(MS);
        ask(&key("at"), true).await;
        clock.jump(MS);
        ask(&key("after"), true).await;
    }
}

/// Verifies the clock: check this law first if laws about time fail.
pub async fn the_store_uses_its_configured_clock(s: &Subject) {
    let clock = s.exact_clock();
    let lease = 10 * HOUR;
    let ask = |owner| ClaimRequest { lease, ..s.ask(owner) };
    acquired(s.claim(&ask(1)).await);
    for hours in 1..10 {
        clock.advance(HOUR).await;
        let (claim, left) = (s.claim(&ask(2)).await, lease - hours * HOUR);
        let Claim::InFlight(InFlight::Leased { rest }) = claim else {
            panic!(
                "a lease of ten hours began {hours} h ago by the clock given to `on_clock`, and the store answered {claim:?}"
            )
        };
        // To the second: other laws check the rounding.
        assert!(
            rest.abs_diff(left) < Duration::from_secs(2),
            "a lease of ten hours began {hours} h ago by the clock given to `on_clock`, and the store says that {rest:?} \
             are left of it: does it read that clock?"
        );
    }
    clock.advance(HOUR + Duration::from_secs(2)).await;
    let claim = s.claim(&ask(2)).await;
    answers_like!(
        claim,
        Claim::Acquired(_),
        "a lease is over by the clock given to `on_clock`, and the store answered {claim:?} to a takeover"
    );
}

pub async fn a_lease_ends_to_the_ms(s: &Subject) {
    for lease in [MS, 2 * MS, Duration::from_millis(1_500), s.lease()] {
        let ask = |key: &str, owner| ClaimRequest { lease, ..s.ask_on(key, owner) };
        at_the_end_of(
            s,
            lease,
            async |key| {
                acquired(s.claim(&ask(key, 1)).await);
            },
            async |key, over| match (over, s.claim(&ask(key, 2)).await) {
                (false, claim) => answers!(claim, Claim::InFlight(InFlight::Leased { rest: MS }), "{key}"),
                (true, claim) => assert!(acquired(claim).taken_over.is_some(), "{key}"),
            },
        )
        .await;
    }
}

pub async fn a_renewed_lease_ends_to_the_ms(s: &Subject) {
    let lease = Duration::from_millis(2_500);
    at_the_end_of(
        s,
        lease,
        async |key| {
            acquired(s.claim(&ClaimRequest { lease: MS, ..s.ask_on(key, 1) }).await);
            let renewed = s.store.renew(&s.ask_on(key, 1).held(), lease).await;
            answers!(must("renew", renewed), Settled::Done, "{HELD}");
        },
        async |key, over| match (over, s.claim(&s.ask_on(key, 2)).await) {
            (false, claim) => answers!(claim, Claim::InFlight(InFlight::Leased { rest: MS }), "{key}"),
            (true, claim) => assert!(acquired(claim).taken_over.is_some(), "{key}"),
        },
    )
    .await;
}

pub async fn a_delay_ends_to_the_ms(s: &Subject) {
    let delay = Duration::from_millis(2_500);
    at_the_end_of(
        s,
        delay,
        async |key| {
            acquired(s.claim(&s.ask_on(key, 1)).await);
            let vacate = Release { delay, ..put_down(ReleaseKind::Vacate) };
            must("release", s.store.release(&s.ask_on(key, 1).held(), &vacate).await);
        },
        async |key, over| match (over, s.claim(&s.ask_on(key, 2)).await) {
            (false, claim) => answers!(claim, Claim::Delayed { rest: MS }, "{key}"),
            (true, claim) => answers!(acquired(claim).attempt, 2, "{key}"),
        },
    )
    .await;
}

pub async fn a_retention_ends_to_the_ms(s: &Subject) {
    let retain = Duration::from_millis(2_500);
    at_the_end_of(
        s,
        retain,
        async |key| {
            acquired(s.claim(&s.ask_on(key, 1)).await);
            must("complete", s.store.complete(&s.ask_on(key, 1).held(), &done(b"v", retain)).await);
        },
        async |key, over| match (over, s.claim(&s.ask_on(key, 2)).await) {
            (false, claim) => answers_like!(claim, Claim::Consumed(_), "{key}: {claim:?}"),
            (true, claim) => answers!(acquired(claim).attempt, 1, "{key}"),
        },
    )
    .await;
}

/// Checks the retention of a vacant, a failed and a dead record, and of one that its owner abandoned.
pub async fn a_failure_retention_ends_to_the_ms(s: &Subject) {
    let retention = Duration::from_millis(2_500);
    let span = |verdict| if matches!(verdict, Some(ReleaseKind::Vacate) | None) { 2 * retention } else { retention };
    for verdict in [None, Some(ReleaseKind::Vacate), Some(ReleaseKind::MarkFailed), Some(ReleaseKind::MarkDead)] {
        let ask = |key: &str, owner| {
            let key = format!("{key} {verdict:?}");
            ClaimRequest { lease: retention, retention, ..s.ask_on(&key, owner) }
        };
        at_the_end_of(
            s,
            span(verdict),
            async |key| {
                acquired(s.claim(&ask(key, 1)).await);
                if let Some(verdict) = verdict {
                    let release = Release { delay: retention, retention, ..put_down(verdict) };
                    must("release", s.store.release(&ask(key, 1).held(), &release).await);
                }
            },
            async |key, over| {
                let record = must("peek", s.store.peek(&ask(key, 2).key).await);
                answers!(record.is_none(), over, "{key}, {verdict:?}: {record:?}");
                if over {
                    let grant = acquired(s.claim(&ClaimRequest { lease: HOUR, ..ask(key, 2) }).await);
                    answers!((grant.attempt, grant.taken_over), (1, None), "{key}, {verdict:?}");
                }
            },
        )
        .await;
    }
}

pub async fn an_owner_has_its_lease_to_the_last_ms(s: &Subject) {
    let clock = s.exact_clock();
    for (step, moment) in [("renew", 0), ("complete", 437), ("release", 999)] {
        clock.jump(moment * MS);
        let ask = |owner| s.ask_on(step, owner);
        let first = acquired(s.claim(&ask(1)).await);
        for part in [s.lease() / 3, s.lease() / 3, s.lease() / 3 - MS] {
            clock.jump(part);
            answers_like!(s.claim(&ask(2)).await, Claim::InFlight(_), "no other owner takes over");
            answers!(acquired(s.claim(&ask(1)).await), first, "the same owner asking again gets the grant it has");
        }
        let held = ask(1).held();
        let settled = match step {
            "renew" => s.store.renew(&held, s.lease()).await,
            "complete" => s.store.complete(&held, &done(b"v", HOUR)).await,
            _ => s.store.release(&held, &put_down(ReleaseKind::MarkFailed)).await,
        };
        answers!(must(step, settled), Settled::Done, "{step} in the last ms");
        let state = must("peek", s.store.peek(&held.key).await).map(|record| record.state.kind());
        let expected = match step {
            "renew" => StateKind::Consuming,
            "complete" => StateKind::Consumed,
            _ => StateKind::Failed,
        };
        answers!(
            state,
            Some(expected),
            "the owner settled in the last ms of its lease, and this is the state that was to be"
        );
    }
}
