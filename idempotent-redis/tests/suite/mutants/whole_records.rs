//! Completions that compare the whole record of a grant.
use std::time::Duration;

use idempotent_core::{
    Batch, Claim, ClaimHandle, Completion, FencingToken, GrantTerms, OwnerToken, Settled, StateKind, Store,
};
use idempotent_harness::servers::Value;

use super::planted_records::{HELD, HOUR, Shape, World, ask, digits, done, held, key, now};
use crate::support::calls;

/// Plants the record of a grant with this fencing number, and returns its handle.
fn plant(w: &World, name: u128, fencing: u64) -> ClaimHandle {
    let (key, lease, retention) = (key(name), Duration::from_secs(30), HOUR);
    let shape = Shape { kept: 3_600_000_000, fencing: digits(fencing), ..HELD };
    w.plant(&key, &shape.bytes_at(fencing));
    let terms = Some(GrantTerms { lease, retention, fingerprint: None, display: None });
    ClaimHandle { key, owner: OwnerToken(1), fencing: Some(FencingToken(fencing)), terms }
}

fn ttl(w: &World, held: &ClaimHandle) -> i64 {
    w.server.command(&["PTTL", held.key.as_str()]).integer().unwrap()
}

/// The record that the claim script writes is the one that a completion expects.
pub(crate) async fn a_record_as_granted_is_completed_by_one_call(w: &World) {
    let request = ask(&key(1), 1);
    let Ok(Claim::Acquired(grant)) = w.store.claim(&request).await else { panic!("not granted") };
    let held = ClaimHandle::granted(&request, &grant);
    let before = calls(&w.server, "evalsha");
    assert_eq!(w.store.complete(&held, &done(None)).await.unwrap(), Settled::Done);
    assert_eq!(calls(&w.server, "evalsha"), before + 1);
    assert_eq!(w.look(&held.key), Value::Bytes(format!("{:016}001", grant.fencing.0).into_bytes()));
}

pub(crate) async fn a_completion_by_the_whole_record_is_retained_as_asked(w: &World) {
    for (name, retain, expected) in [(1, Duration::from_secs(300), 1..=300_000), (2, Duration::MAX, -1..=-1)] {
        let held = plant(w, name, now() - 1_000_000);
        assert_eq!(w.store.complete(&held, &Completion { value: None, retain }).await.unwrap(), Settled::Done);
        assert!(expected.contains(&ttl(w, &held)), "{retain:?}: {}", ttl(w, &held));
    }
}

/// The retention ends before the clock passes the number, which the record must outlast.
pub(crate) async fn a_grant_ahead_of_the_clock_is_retained_until_the_clock_has_passed_it(w: &World) {
    let held = plant(w, 1, now() + 1_800_000_000);
    let short = Completion { value: None, retain: Duration::from_secs(1) };
    assert_eq!(w.store.complete(&held, &short).await.unwrap(), Settled::Done);
    assert!(ttl(w, &held) > 1_700_000, "{}", ttl(w, &held));
}

/// The server may expire a key later than its record says.
pub(crate) async fn a_grant_whose_time_is_over_is_lost(w: &World) {
    let held = plant(w, 1, now() - 3_631_000_000);
    let lost = Settled::Lost { now: StateKind::Absent };
    assert_eq!(w.store.complete(&held, &done(None)).await.unwrap(), lost);
}

/// One call completes several keys. Each record that differs is decided on its own.
pub(crate) async fn each_differing_record_of_a_batch_is_decided_by_its_owner(w: &World) {
    let mut batch = Vec::new();
    for name in 0..12 {
        let held = plant(w, name, now() - 1_000_000);
        match name % 3 {
            // As granted.
            0 => {}
            // Renewed.
            1 => assert_eq!(w.store.renew(&held, HOUR).await.unwrap(), Settled::Done),
            // Another owner.
            _ => {
                w.server.command(&["SETRANGE", held.key.as_str(), "21", "another owner 16"]);
            }
        }
        batch.push((held, done(None)));
    }
    let settled = w.store.complete_all(&batch).await;
    for (name, settled) in settled.into_iter().enumerate() {
        assert_eq!(settled.unwrap() == Settled::Done, name % 3 < 2, "{name}");
    }
}

/// A value of another type is the same error as for a completion by owner.
pub(crate) async fn a_foreign_value_is_not_replaced(w: &World) {
    let held = ClaimHandle { terms: plant(w, 1, now()).terms, fencing: Some(FencingToken(7)), ..held(&key(2), 1) };
    w.server.command(&["LPUSH", held.key.as_str(), "of another program"]);
    let failed = w.store.complete(&held, &done(None)).await;
    assert_eq!(failed.err().map(|error| error.kind()), Some(idempotent_core::StoreErrorKind::Foreign));
}
