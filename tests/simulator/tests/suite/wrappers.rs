//! Tests of wrappers: each forwards or deliberately drops every capability of the inner store, and changes no answer.
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use idempotent_core::{
    Cas, CasBackend, ClaimRequest, Fingerprint, Key, OnExpiry, OwnerToken, Record, Store, StoreError, Version,
    VersionedRecord,
};
use idempotent_simulator::mutants::Mutant;
use idempotent_testkit::conformance::laws;
use idempotent_testkit::{FaultStore, Subject, VirtualClock};

fn capabilities(store: &dyn Store) -> Vec<&'static str> {
    let capabilities = store.capabilities();
    let names = [
        ("batch", capabilities.batch.is_some()),
        ("watch", capabilities.watch.is_some()),
        ("search", capabilities.search.is_some()),
        ("purge", capabilities.purge.is_some()),
        ("admin", capabilities.admin.is_some()),
        ("journal", capabilities.steps.is_some()),
    ];
    names.into_iter().filter(|(_, has)| *has).map(|(name, _)| name).collect()
}

fn whole(clock: &VirtualClock) -> Mutant {
    Mutant::new(None, Arc::new(clock.clone()))
}

#[test]
fn arc_and_box_forward_every_ability() {
    let store = whole(&VirtualClock::new());
    let all = ["batch", "watch", "search", "purge", "admin", "journal"];
    assert_eq!(capabilities(&store), all);
    assert_eq!(capabilities(&Arc::new(store.clone())), all);
    assert_eq!(capabilities(&Box::new(store.clone())), all);
    let shared: Arc<dyn Store> = Arc::new(store);
    assert_eq!(capabilities(&shared), all);
    let boxed: Box<dyn Store> = Box::new(shared);
    assert_eq!(capabilities(&boxed), all, "one in another, too");
}

#[test]
fn arc_and_box_keep_the_laws() {
    let about = ["capabilities", "equality", "owners"];
    for law in laws::all().filter(|law| about.contains(&law.group())) {
        law.hold(|| {
            let clock = VirtualClock::new();
            let boxed: Box<dyn Store> = Box::new(Arc::new(whole(&clock)));
            Subject::new(boxed).on_clock(clock)
        });
    }
}

#[test]
fn a_store_made_of_a_backend_has_admin_alone_behind_faults_too() {
    assert_eq!(capabilities(&Cas(Nothing)), ["admin"]);
    assert_eq!(capabilities(&FaultStore::new(Cas(Nothing), &VirtualClock::new())), ["admin"]);
}

/// An empty backend that rejects every swap.
#[derive(Debug)]
struct Nothing;

#[async_trait]
impl CasBackend for Nothing {
    async fn read(&self, _: &Key) -> Result<VersionedRecord, StoreError> {
        Ok(VersionedRecord { record: None, version: 0, now: VirtualClock::START })
    }

    async fn swap(&self, _: &Key, _: Version, _: Option<&Record>) -> Result<bool, StoreError> {
        Ok(false)
    }
}

/// A claim contains durations, which the store counts, and no times of the client.
#[test]
fn a_claim_carries_spans_and_no_times() {
    fn spans(request: ClaimRequest) -> [Duration; 2] {
        // A new field must be checked here.
        let ClaimRequest { key, owner, lease, fingerprint, max_attempts, on_expiry, retention, display } = request;
        let _: (Key, OwnerToken, Option<Fingerprint>, u32) = (key, owner, fingerprint, max_attempts);
        let _: (OnExpiry, Option<Arc<str>>) = (on_expiry, display);
        [lease, retention]
    }
    let request = ClaimRequest {
        key: Key::from_parts("laws", 1),
        owner: OwnerToken(1),
        lease: Duration::from_secs(1),
        fingerprint: None,
        max_attempts: 0,
        on_expiry: OnExpiry::Takeover,
        retention: Duration::from_secs(2),
        display: None,
    };
    assert_eq!(spans(request), [Duration::from_secs(1), Duration::from_secs(2)]);
}
