//! Laws about versions: a version identifies one write of one key forever.
use std::collections::HashSet;
use std::time::Duration;

use idempotent_core::protocol::CAS_MARGIN;
use idempotent_core::{Record, Version};

use crate::conformance::CasSubject;
use crate::conformance::cas::Hand;
use crate::conformance::subject::MS;

pub async fn the_version_is_zero_exactly_without_a_record(s: &CasSubject) {
    let k = s.hand("k");
    for round in ["never written", "deleted", "deleted twice"] {
        let seen = k.read().await;
        assert_eq!((seen.record, seen.version), (None, 0), "nothing is there: {round}");
        k.put(&k.sample(1).await).await;
        let seen = k.read().await;
        assert!(seen.record.is_some(), "a record was written, and nothing is read");
        assert_ne!(seen.version, 0, "a record is there; it had been {round} before");
        k.put(&k.sample(2).await).await;
        assert_ne!(k.version().await, 0, "a record is there, written over");
        k.delete().await;
    }
}

pub async fn each_write_changes_the_version_also_of_an_equal_record(s: &CasSubject) {
    let k = s.hand("k");
    let record = k.sample(1).await;
    let mut last = k.put(&record).await;
    for n in [1, 1, 2, 1, 1] {
        let version = k.put(&Record { attempt: n, ..record.clone() }).await;
        assert_ne!(version, last, "a write left the version as it was");
        last = version;
    }
}

pub async fn reading_changes_nothing(s: &CasSubject) {
    let k = s.hand("k");
    let record = k.sample(1).await;
    let version = k.put(&record).await;
    for _ in 0..3 {
        let seen = k.read().await;
        assert_eq!((seen.version, seen.record.as_ref()), (version, Some(&record)), "a read changed the record");
    }
    assert!(k.swap(version, Some(&record)).await, "reads made a version stale");
}

pub async fn a_version_does_not_repeat_after_a_deletion(s: &CasSubject) {
    let k = s.hand("k");
    let record = k.sample(1).await;
    let first = k.put(&record).await;
    k.delete().await;
    k.put(&record).await;
    stale(&k, first, "before the deletion").await;
    // The new record has as many writes as the old one.
    let second = k.put(&record).await;
    k.delete().await;
    k.put(&record).await;
    k.put(&record).await;
    stale(&k, first, "before two deletions").await;
    stale(&k, second, "before the second deletion").await;
}

pub async fn a_version_does_not_repeat_after_writes(s: &CasSubject) {
    let k = s.hand("k");
    let record = k.sample(1).await;
    let first = k.put(&record).await;
    let second = k.put(&k.sample(2).await).await;
    stale(&k, first, "before the last write").await;
    k.put(&record).await;
    stale(&k, first, "when the same record was there before").await;
    stale(&k, second, "before the last write").await;
}

pub async fn a_version_does_not_repeat_after_an_expiry(s: &CasSubject) {
    let k = s.hand("k");
    let span = Duration::from_secs(1);
    let short = k.sample(1).await;
    let short = Record { expires_at: short.updated_at + span, ..short };
    let first = k.put(&short).await;
    s.pass(span + MS).await;
    // The backend may have removed the record, or may remove it now. It must not hide the record and still compare with
    // it.
    let record = k.sample(2).await;
    let mut written = false;
    for _ in 0..3 {
        written = written || k.swap(k.version().await, Some(&record)).await;
    }
    assert!(written, "a record past its time cannot be written over with the version that is read: its key is stuck");
    stale(&k, first, "when a record past its time was there").await;
}

/// Checks a delayed claim: its swap would get a lower fencing token than the claim whose record is gone.
pub async fn a_swap_that_expects_no_record_is_refused_for_an_hour_after_an_expiry(s: &CasSubject) {
    let k = s.hand("k");
    let nothing = k.version().await;
    let brief = Duration::from_secs(1);
    let sample = k.sample(1).await;
    k.put(&Record { expires_at: sample.updated_at + brief, ..sample.clone() }).await;
    let two = Duration::from_secs(2);
    // In real time, the law only checks the first seconds.
    for past in [Some(brief + two), s.clock().map(|_| CAS_MARGIN - two - two)].into_iter().flatten() {
        s.pass(past).await;
        k.purge().await;
        let done = k.swap(nothing, Some(&Record { attempt: 2, ..sample.clone() })).await;
        assert!(!done, "a record was removed before `protocol::removable` allowed that, and a late swap found nothing");
    }
}

pub async fn a_long_history_has_no_version_twice(s: &CasSubject) {
    let k = s.hand("k");
    let record = k.sample(1).await;
    let mut versions = HashSet::new();
    for n in 0..100_u32 {
        let version = k.put(&record).await;
        assert!(
            versions.insert(version),
            "write {n} brought version {version} back: take versions from one counter for the whole store"
        );
        if n % 3 == 0 {
            k.delete().await;
        }
    }
}

pub async fn two_keys_share_neither_rows_nor_versions(s: &CasSubject) {
    let (a, b) = (s.hand("a"), s.hand("b"));
    let (of_a, of_b) = (a.sample(1).await, b.sample(2).await);
    let version = a.put(&of_a).await;
    let unchanged = async |what: &str| {
        let seen = a.read().await;
        assert_eq!(seen.record.as_ref(), Some(&of_a), "{what} another key changed this one's record");
        assert_eq!(seen.version, version, "{what} another key changed this one's version");
    };
    let seen = b.read().await;
    assert_eq!((seen.record, seen.version), (None, 0), "a write of one key shows under another");
    b.put(&of_b).await;
    unchanged("a write of").await;
    assert_eq!(b.record().await, Some(of_b));
    b.delete().await;
    unchanged("a deletion of").await;
    assert!(a.swap(version, None).await, "writes of another key made this one's version stale");
}

/// Checks that the version neither writes nor deletes.
async fn stale(k: &Hand, version: Version, when: &str) {
    let now = k.version().await;
    for (next, verb) in [(Some(k.sample(9).await), "wrote"), (None, "deleted")] {
        let done = k.swap(version, next.as_ref()).await;
        let why = if version == now {
            "the version has come back: take versions from one counter for the whole store"
        } else {
            "swap must compare"
        };
        assert!(!done, "a swap with version {version}, read {when}, {verb} the current record (version {now}): {why}");
    }
}
