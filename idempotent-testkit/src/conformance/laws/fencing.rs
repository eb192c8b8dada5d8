//! Laws about fencing tokens: a grant has a higher token than every earlier grant of its key.
use std::time::Duration;

use idempotent_core::{ClaimRequest, FencingToken, ReleaseKind, Settled};

use crate::conformance::Subject;
use crate::conformance::subject::{HOUR, MS, acquired, done, must};

/// 2^53: doubles skip integers from here on.
const LIMIT: u64 = 1 << 53;

/// Claims the key, and checks that its fencing token is higher than `last`.
async fn higher(s: &Subject, ask: &ClaimRequest, last: &mut FencingToken, after: &str) {
    let fencing = acquired(s.claim(ask).await).fencing;
    assert!(fencing > *last, "after {after}: {fencing} is not above {last}");
    *last = fencing;
}

pub async fn fencing_rises_over_every_kind_of_release(s: &Subject) {
    let mut last = FencingToken(0);
    for round in 0..3 {
        for (index, verdict) in [ReleaseKind::Delete, ReleaseKind::Vacate, ReleaseKind::Refund].into_iter().enumerate()
        {
            let owner = round * 10 + index as u128;
            higher(s, &s.ask(owner), &mut last, &format!("the release before {verdict:?}")).await;
            assert_eq!(s.release(owner, verdict).await, Settled::Done);
        }
    }
}

pub async fn fencing_rises_over_takeover(s: &Subject) {
    let mut last = FencingToken(0);
    for owner in 0..3 {
        higher(s, &s.ask(owner), &mut last, "a takeover").await;
        s.pass(s.lease()).await;
    }
}

pub async fn fencing_rises_after_an_expired_record(s: &Subject) {
    let mut last = FencingToken(0);
    let brief = s.lease();
    let ask = |owner| ClaimRequest { retention: brief, ..s.ask(owner) };
    higher(s, &ask(1), &mut last, "nothing").await;
    s.pass(brief * 2).await;
    higher(s, &ask(2), &mut last, "lease and memory").await;
    must("complete", s.store.complete(&s.held(2), &done(b"v", brief)).await);
    s.pass(brief).await;
    higher(s, &ask(3), &mut last, "the retention").await;
}

/// Checks that a clock that ticks more slowly than grants are made does not give one token twice.
pub async fn fencing_rises_within_one_instant(s: &Subject) {
    let mut last = FencingToken(0);
    for owner in 0..100 {
        higher(s, &s.ask(owner), &mut last, "a deletion a moment ago").await;
        let verdict = if owner % 3 == 2 { ReleaseKind::Vacate } else { ReleaseKind::Delete };
        assert_eq!(s.release(owner, verdict).await, Settled::Done);
    }
}

pub async fn fencing_rises_over_purge_within_one_instant(s: &Subject) {
    let (mut last, purge) = (FencingToken(0), s.purge());
    for owner in 0..20 {
        higher(s, &s.ask(owner), &mut last, "deletion and purge a moment ago").await;
        assert_eq!(s.release(owner, ReleaseKind::Delete).await, Settled::Done);
        must("purge", purge.purge(1_000).await);
    }
}

/// Makes a thousand grants in one ms: the fencing token is ahead of the clock when the last record expires.
pub async fn fencing_rises_over_expiry_when_tokens_are_ahead_of_the_clock(s: &Subject) {
    s.exact_clock();
    let mut last = FencingToken(0);
    for owner in 0..1_100 {
        higher(s, &s.ask(owner), &mut last, "a deletion a moment ago").await;
        s.release(owner, ReleaseKind::Delete).await;
    }
    let brief = ClaimRequest { lease: MS, retention: Duration::ZERO, ..s.ask(2_000) };
    higher(s, &brief, &mut last, "a deletion a moment ago").await;
    s.pass(MS).await;
    if let Some(purge) = s.store.capabilities().purge {
        must("purge", purge.purge(1_000).await);
    }
    higher(s, &s.ask(2_001), &mut last, "an end before the clock caught up").await;
}

pub async fn fencing_rises_over_deletion_by_an_operator(s: &Subject) {
    let (mut last, admin) = (FencingToken(0), s.admin());
    for owner in 0..3 {
        higher(s, &s.ask(owner), &mut last, "forgetting").await;
        s.complete(owner, b"v").await;
        assert_eq!(must("forget", admin.forget(&s.key("k"), last, false, HOUR).await), Settled::Done);
    }
}

pub async fn fencing_tokens_fit_the_numbers_of_every_script_language(s: &Subject) {
    let first = acquired(s.claim_by(1).await).fencing;
    assert!(first.0 < LIMIT, "{first} is not below 2^53");
    // max(previous + 1, the clock in µs): the token rises even if the record is lost.
    if let Some(clock) = &s.clock {
        assert_eq!(first.0, idempotent_core::Clock::wall(clock).0);
        s.release(1, ReleaseKind::Delete).await;
        s.pass(Duration::from_secs(1)).await;
        assert_eq!(acquired(s.claim_by(2).await).fencing.0, first.0 + 1_000_000);
    }
}
