//! Laws about swaps: a swap compares and writes, or changes nothing and returns false.
use idempotent_core::{Record, Version, VersionedRecord};

use crate::conformance::CasSubject;
use crate::conformance::cas::Hand;

pub async fn a_swap_with_the_version_just_read_writes(s: &CasSubject) {
    let k = s.hand("k");
    for n in 1..=5 {
        let (version, record) = (k.version().await, k.sample(n).await);
        assert!(k.swap(version, Some(&record)).await, "there is no other writer, but write {n} is refused");
        assert_eq!(k.record().await, Some(record), "the swap said that it wrote");
    }
}

pub async fn a_swap_to_no_record_deletes(s: &CasSubject) {
    let k = s.hand("k");
    for n in 1..=3 {
        let version = k.put(&k.sample(n).await).await;
        assert!(k.swap(version, None).await, "there is no other writer, but deletion {n} is refused");
        let seen = k.read().await;
        assert_eq!((seen.record, seen.version), (None, 0), "the swap said that it deleted");
    }
}

pub async fn a_swap_that_expects_no_record_does_not_replace_one(s: &CasSubject) {
    let k = s.hand("k");
    for n in 1..=2 {
        k.put(&k.sample(n).await).await;
        refused(&k, 0, "zero, and a record is there").await;
    }
}

pub async fn a_swap_that_expects_a_record_does_not_create_one(s: &CasSubject) {
    let k = s.hand("k");
    refused(&k, 1, "not zero, and nothing was ever there").await;
    let version = k.put(&k.sample(1).await).await;
    k.delete().await;
    refused(&k, version, "the deleted record's").await;
}

pub async fn a_refused_swap_changes_nothing(s: &CasSubject) {
    let k = s.hand("k");
    let never = Version::MAX >> 1;
    unmoved(&k, &[1, never]).await;
    let first = k.put(&k.sample(1).await).await;
    unmoved(&k, &[0, never]).await;
    let second = k.put(&k.sample(2).await).await;
    unmoved(&k, &[0, first, never]).await;
    k.delete().await;
    unmoved(&k, &[first, second, never]).await;
    k.put(&k.sample(3).await).await;
    unmoved(&k, &[0, first, second, never]).await;
    let kept = k.version().await;
    assert!(k.swap(kept, None).await, "refused swaps made version {kept} stale");
}

/// Checks that swaps with these versions are refused and change nothing.
async fn unmoved(k: &Hand, versions: &[Version]) {
    let before = k.read().await;
    for &version in versions {
        for next in [Some(k.sample(9).await), None] {
            if k.swap(version, next.as_ref()).await {
                swapped_with(version, &before, next.as_ref());
            }
            let after = k.read().await;
            assert_eq!(after.record, before.record, "a refused swap changed the record ({})", verb(next.as_ref()));
            assert_eq!(after.version, before.version, "a refused swap changed the version ({})", verb(next.as_ref()));
        }
    }
}

/// Fails for a swap that should have been refused.
fn swapped_with(version: Version, before: &VersionedRecord, next: Option<&Record>) -> ! {
    let verb = verb(next);
    if version == before.version {
        panic!(
            "version {version} was seen before, then written over or deleted, and is here again, so that {verb} with the \
             old one was done: versions must not come back, and a swap with the old one must be refused. Take versions \
             from one counter for the whole store"
        );
    }
    panic!(
        "{verb} with version {version} was done where version {} is: swap must compare, and must be refused where the \
         versions differ",
        before.version
    );
}

async fn refused(k: &Hand, version: Version, why: &str) {
    for next in [Some(k.sample(9).await), None] {
        let done = k.swap(version, next.as_ref()).await;
        assert!(!done, "{} with version {version} was done: it is {why}", verb(next.as_ref()));
    }
}

fn verb(next: Option<&Record>) -> &'static str {
    if next.is_some() { "a write" } else { "a deletion" }
}
