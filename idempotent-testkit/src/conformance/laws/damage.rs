//! Laws about unreadable records: every operation is refused with the right error, and the stored value does not
//! change.
use std::fmt::Debug;

use idempotent_core::{
    ClaimRequest, FencingToken, Fingerprint, KeyFilter, OnExpiry, OwnerToken, PageLimits, Settled, StateKind,
    StoreError, StoreErrorKind,
};

use crate::conformance::damage::Damage;
use crate::conformance::subject::{HOUR, HeldBy, MS, Subject, VERDICTS, acquired, done, must, put_down};

fn corrupt(damage: &Damage) -> bool {
    damage.kind() == StoreErrorKind::Corrupt
}

/// Returns a key for each kind of damage that the storage can hold, with the damage in place of a held record.
async fn planted(s: &Subject, which: impl Fn(&Damage) -> bool) -> Vec<(Damage, ClaimRequest)> {
    let (plant, mut planted) = (s.plant(), Vec::new());
    for damage in Damage::ALL.iter().copied().filter(|damage| which(damage) && plant.holds(*damage)) {
        let fingerprint = Some(Fingerprint::of_bytes("a"));
        let ask = ClaimRequest { fingerprint, ..s.ask_on(&format!("{damage:?}"), 1) };
        acquired(s.claim(&ask).await);
        let before = plant.look(&ask.key).await;
        assert!(!before.is_empty(), "a record was written, and `look` sees nothing");
        plant.plant(&ask.key, damage).await;
        assert_ne!(plant.look(&ask.key).await, before, "{damage:?} was planted, and nothing is changed");
        planted.push((damage, ask));
    }
    assert!(!planted.is_empty(), "nothing of this kind can be planted, so nothing is shown");
    planted
}

/// Checks every operation, by the owner and by others.
async fn every_step_is_refused(s: &Subject, damage: Damage, ask: &ClaimRequest) {
    let (held, other) = (ask.held(), ClaimRequest { owner: OwnerToken(2), ..ask.clone() });
    refused(damage, "claim by its owner", s.store.claim(ask).await);
    refused(damage, "claim", s.store.claim(&other).await);
    let park = ClaimRequest { on_expiry: OnExpiry::Park, max_attempts: 1, ..other.clone() };
    refused(damage, "claim that may bury", s.store.claim(&park).await);
    refused(damage, "renew", s.store.renew(&held, HOUR).await);
    refused(damage, "complete", s.store.complete(&held, &done(b"v", HOUR)).await);
    for verdict in VERDICTS {
        refused(damage, &format!("release as {verdict:?}"), s.store.release(&held, &put_down(verdict)).await);
    }
    refused(damage, "peek", s.store.peek(&ask.key).await);
    if let Some(admin) = s.store.capabilities().admin {
        refused(damage, "forget", admin.forget(&ask.key, FencingToken(1), true, HOUR).await);
    }
}

#[track_caller]
fn refused<T: Debug>(damage: Damage, step: &str, answer: Result<T, StoreError>) {
    match answer {
        Ok(answer) => panic!("{damage:?}: {step} was answered {answer:?}"),
        Err(error) => assert_eq!(error.kind(), damage.kind(), "{damage:?}: {step}: {error}"),
    }
}

pub async fn a_damaged_record_is_corrupt_for_each_operation(s: &Subject) {
    for (damage, ask) in planted(s, corrupt).await {
        every_step_is_refused(s, damage, &ask).await;
    }
}

pub async fn a_record_of_a_newer_version_is_refused_by_each_operation(s: &Subject) {
    for (damage, ask) in planted(s, |damage| *damage == Damage::NewerVersion).await {
        every_step_is_refused(s, damage, &ask).await;
    }
}

pub async fn a_foreign_value_is_refused_by_each_operation(s: &Subject) {
    s.plant_foreign();
    for (damage, ask) in planted(s, |damage| *damage == Damage::Foreign).await {
        every_step_is_refused(s, damage, &ask).await;
    }
}

pub async fn an_unreadable_record_is_never_overwritten_or_deleted(s: &Subject) {
    let planted = planted(s, |_| true).await;
    let before = look_at(s, &planted).await;
    for when in ["at once", "when its lease would be over"] {
        for (_, ask) in &planted {
            every_step(s, ask).await;
        }
        assert_eq!(look_at(s, &planted).await, before, "an unreadable record was changed, {when}");
        s.pass(s.lease() + MS).await;
    }
    // Other keys still work.
    assert_eq!(acquired(s.claim_by(1).await).attempt, 1);
    assert_eq!(s.complete(1, b"v").await, Settled::Done);
}

/// Calls every operation, and ignores the answers.
async fn every_step(s: &Subject, ask: &ClaimRequest) {
    let (held, other) = (ask.held(), ClaimRequest { owner: OwnerToken(2), ..ask.clone() });
    let _ = s.store.claim(ask).await;
    let _ = s.store.claim(&other).await;
    let _ = s.store.renew(&held, HOUR).await;
    let _ = s.store.complete(&held, &done(b"v", HOUR)).await;
    for verdict in VERDICTS {
        let _ = s.store.release(&held, &put_down(verdict)).await;
    }
    let _ = s.store.peek(&ask.key).await;
    if let Some(admin) = s.store.capabilities().admin {
        let _ = admin.forget(&ask.key, FencingToken(1), true, HOUR).await;
    }
}

/// Checks the order: version and damage come before the state, and the state before the fingerprint.
pub async fn an_unreadable_record_is_not_a_mismatch(s: &Subject) {
    for (damage, ask) in planted(s, |_| true).await {
        let fingerprint = Some(Fingerprint::of_bytes("b"));
        refused(damage, "a claim with another payload", s.store.claim(&ClaimRequest { fingerprint, ..ask }).await);
    }
}

pub async fn a_purge_keeps_unreadable_records(s: &Subject) {
    let purge = s.purge();
    let planted = planted(s, |_| true).await;
    let before = look_at(s, &planted).await;
    must("purge", purge.purge(1_000).await);
    assert_eq!(look_at(s, &planted).await, before, "a purge changed an unreadable record");
    s.pass(s.lease() * 2).await;
    must("purge", purge.purge(1_000).await);
    assert_eq!(look_at(s, &planted).await, before, "a purge changed an unreadable record after the end of its lease");
}

/// Checks that a search reports each of them with its kind, changes none and hides no other record, on every page.
pub async fn a_search_reports_unreadable_records(s: &Subject) {
    let search = s.search();
    acquired(s.claim_by(1).await);
    let planted = planted(s, |_| true).await;
    let before = look_at(s, &planted).await;
    for keys in [1, 1_000] {
        let (mut readable, mut unreadable, mut after, mut pages) = (Vec::new(), Vec::new(), None, 0);
        loop {
            pages += 1;
            assert!(pages < 1_000, "1,000 pages and still a next one: `next` is to lead on from `after`");
            let limits = PageLimits { keys, ..PageLimits::default() };
            let page = must("search", search.search(&KeyFilter::default(), after, limits).await);
            readable.extend(page.entries.into_iter().map(|entry| entry.key.hash()));
            unreadable.extend(page.unreadable);
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        assert!(readable.contains(&s.key("k").hash()), "a readable record is missing");
        for (damage, ask) in &planted {
            assert!(!readable.contains(&ask.key.hash()), "{damage:?} is listed as if it could be read");
            let mut found = unreadable.iter().filter(|record| record.key == ask.key);
            let record = found.next().unwrap_or_else(|| panic!("{damage:?} is not reported"));
            assert_eq!(record.kind, damage.kind(), "{damage:?}: {}", record.reason);
            assert!(!record.reason.is_empty() && found.next().is_none(), "{damage:?}: one report with a reason");
        }
        let filter = KeyFilter::of_states(&[StateKind::Consuming]);
        let page =
            must("search", search.search(&filter, None, PageLimits { keys: 1_000, ..PageLimits::default() }).await);
        assert!(page.unreadable.is_empty(), "not selected: {:?}", page.unreadable);
    }
    assert_eq!(look_at(s, &planted).await, before, "a search changed an unreadable record");
}

pub async fn a_batch_refuses_only_unreadable_records(s: &Subject) {
    let batch = s.batch();
    for (damage, ask) in planted(s, |_| true).await {
        let fine = s.ask_on(&format!("fine beside {damage:?}"), 1);
        let before = s.plant().look(&ask.key).await;
        let mut claims = batch.claim_all(&[ask.clone(), fine.clone()]).await;
        let last = claims.pop().expect("two answers");
        refused(damage, "claim in a batch", claims.remove(0));
        acquired(must("the claim beside it", last));
        let mut renewed = batch.renew_all(&[(fine.held(), HOUR), (ask.held(), HOUR)]).await;
        refused(damage, "renewal in a batch", renewed.remove(1));
        assert_eq!(must("the renewal beside it", renewed.remove(0)), Settled::Done);
        let completions = [(ask.held(), done(b"v", HOUR)), (fine.held(), done(b"v", HOUR))];
        let mut completed = batch.complete_all(&completions).await;
        assert_eq!(must("the completion beside it", completed.remove(1)), Settled::Done);
        refused(damage, "completion in a batch", completed.remove(0));
        assert_eq!(s.plant().look(&ask.key).await, before, "{damage:?}");
    }
}

async fn look_at(s: &Subject, planted: &[(Damage, ClaimRequest)]) -> Vec<(Damage, Vec<u8>)> {
    let mut seen = Vec::new();
    for (damage, ask) in planted {
        seen.push((*damage, s.plant().look(&ask.key).await));
    }
    seen
}
