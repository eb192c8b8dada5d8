//! Tests of the laws of different clocks with mutants: each bug breaks the law about it.
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use idempotent_core::protocol::{self, CAS_MARGIN};
use idempotent_core::{
    Cas, CasBackend, Claim, ClaimHandle, ClaimRequest, Clock, Completion, Grant, Identity, Key, OwnerToken, Record,
    Release, Scene, Settled, Store, StoreCapabilities, StoreError, StoreErrorKind, Version, VersionedRecord,
};
use idempotent_testkit::conformance::SkewLaw;
use idempotent_testkit::conformance::laws::skew;
use idempotent_testkit::{SkewedStores, VirtualClock, skew_conformance};

const SKEW: Duration = Duration::from_secs(4);

type Rows = Arc<Mutex<HashMap<Key, (Version, Record)>>>;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Bug {
    /// A claim writes the lease of its request.
    LeaseNotExtended,
    RenewalNotExtended,
    /// A completion and a release write the retention of their request.
    RetentionNotExtended,
    /// A claim that buries a key writes the retention of its request.
    BuriedNotExtended,
    /// The owner gets the extended lease.
    GrantExtended,
    /// A record is removed at its end, so its fencing token is forgotten.
    RemovesAtTheEnd,
    /// A lease ends only after another hour.
    EndsLate,
}

/// A table whose time is that of its client.
#[derive(Debug)]
struct Table {
    rows: Rows,
    clock: VirtualClock,
    skew: Duration,
    bug: Option<Bug>,
}

#[async_trait]
impl CasBackend for Table {
    async fn read(&self, key: &Key) -> Result<VersionedRecord, StoreError> {
        let now = self.clock.wall();
        let mut rows = self.rows.lock().unwrap();
        let removed = |record: &Record| match self.bug {
            Some(Bug::RemovesAtTheEnd) => protocol::live(Some(record), now).is_none(),
            _ => record.expires_at + CAS_MARGIN <= now,
        };
        if rows.get(key).is_some_and(|(_, record)| removed(record)) {
            rows.remove(key);
        }
        let (version, record) = rows.get(key).cloned().map_or((0, None), |(version, record)| (version, Some(record)));
        Ok(VersionedRecord { record, version, now })
    }

    async fn swap(&self, key: &Key, seen: Version, next: Option<&Record>) -> Result<bool, StoreError> {
        let mut rows = self.rows.lock().unwrap();
        let is_current = rows.get(key).map_or(0, |(version, _)| *version) == seen;
        if let (true, Some(record)) = (is_current, next) {
            rows.insert(key.clone(), (seen + 1, record.clone()));
        }
        Ok(is_current)
    }

    fn max_skew(&self) -> Duration {
        self.skew
    }
}

#[derive(Debug)]
struct Mutant {
    cas: Cas<Table>,
    bug: Option<Bug>,
}

impl Mutant {
    /// Returns the duration without its extension.
    fn cut(&self, bug: Bug, duration: Duration) -> Duration {
        if self.bug == Some(bug) { duration.saturating_sub(SKEW) } else { duration }
    }
}

#[async_trait]
impl Store for Mutant {
    async fn claim(&self, request: &ClaimRequest) -> Result<Claim, StoreError> {
        let late = if self.bug == Some(Bug::EndsLate) { Duration::from_secs(3_600) } else { Duration::ZERO };
        let lease = self.cut(Bug::LeaseNotExtended, request.lease) + late;
        let retention = self.cut(Bug::BuriedNotExtended, request.retention);
        let claim = self.cas.claim(&ClaimRequest { lease, retention, ..request.clone() }).await?;
        Ok(match claim {
            Claim::Acquired(grant) if self.bug == Some(Bug::GrantExtended) => {
                Claim::Acquired(Grant { lease: grant.lease + SKEW, ..grant })
            }
            Claim::Acquired(grant) => Claim::Acquired(Grant { lease: request.lease, ..grant }),
            other => other,
        })
    }

    async fn renew(&self, held: &ClaimHandle, lease: Duration) -> Result<Settled, StoreError> {
        self.cas.renew(held, self.cut(Bug::RenewalNotExtended, lease)).await
    }

    async fn complete(&self, held: &ClaimHandle, done: &Completion) -> Result<Settled, StoreError> {
        let retain = self.cut(Bug::RetentionNotExtended, done.retain);
        self.cas.complete(held, &Completion { retain, ..done.clone() }).await
    }

    async fn release(&self, held: &ClaimHandle, release: &Release) -> Result<Settled, StoreError> {
        let retention = self.cut(Bug::RetentionNotExtended, release.retention);
        self.cas.release(held, &Release { retention, ..release.clone() }).await
    }

    async fn peek(&self, key: &Key) -> Result<Option<Record>, StoreError> {
        self.cas.peek(key).await
    }

    fn capabilities(&self) -> StoreCapabilities<'_> {
        StoreCapabilities::none()
    }
}

async fn stores(bug: Option<Bug>) -> SkewedStores {
    let rows = Rows::default();
    let open = async |clock| Mutant { cas: Cas(Table { rows: rows.clone(), clock, skew: SKEW, bug }), bug };
    SkewedStores::open(SKEW, open).await
}

skew_conformance!(a_store_without_a_bug_keeps_every_law, stores(None));

#[test]
fn each_bug_breaks_the_laws_about_it() {
    for (bug, expected) in [
        (Bug::LeaseNotExtended, &["no_lease_is_taken_over_early"][..]),
        (Bug::RenewalNotExtended, &["no_lease_is_taken_over_early"]),
        (Bug::RetentionNotExtended, &["a_settled_key_is_kept_for_its_retention"]),
        (Bug::BuriedNotExtended, &["a_settled_key_is_kept_for_its_retention"]),
        (Bug::GrantExtended, &["an_owner_is_granted_the_lease_of_its_request"]),
        (Bug::RemovesAtTheEnd, &["fencing_rises_over_two_clocks"]),
        (Bug::EndsLate, &["a_lease_may_be_taken_over_after_twice_the_difference"]),
    ] {
        let is_broken =
            |law: &&SkewLaw| catch_unwind(AssertUnwindSafe(|| law.hold(|| Box::pin(stores(Some(bug)))))).is_err();
        let broken: Vec<_> = skew::all().filter(is_broken).map(|law| law.name()).collect();
        for law in expected {
            assert!(broken.contains(law), "{bug:?} was not caught by {law}, but by {broken:?}");
        }
    }
}

#[tokio::test]
async fn a_difference_of_more_than_10_minutes_is_refused() {
    for (skew, is_allowed) in [(Duration::from_secs(600), true), (Duration::from_millis(600_001), false)] {
        let cas = Cas(Table { rows: Rows::default(), clock: VirtualClock::new(), skew, bug: None });
        let key = Identity::new(Scene::Mq, "skew", "k").key("tests").unwrap();
        match cas.renew(&ClaimHandle::unanswered(key, OwnerToken(1)), SKEW).await {
            Ok(settled) => assert!(is_allowed, "{settled:?}"),
            Err(error) => {
                assert_eq!((error.kind(), is_allowed), (StoreErrorKind::Schema, false));
                assert!(error.to_string().contains("at most 600s; synchronize the clocks"), "{error}");
            }
        }
    }
}
