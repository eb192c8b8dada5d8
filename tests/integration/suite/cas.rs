//! A custom store in two methods whose claims are held up between reading and writing.
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use async_trait::async_trait;
use idempotent::store::{
    Cas, CasBackend, Claim, ClaimHandle, OwnerToken, Record, Release, ReleaseKind, Settled, Version, VersionedRecord,
};
use idempotent::{Identity, Key, Scene, Store, StoreError, Timestamp};
use tokio::sync::Notify;

use crate::common::ask;
use crate::versioned::Versioned;

/// A backend whose first read is answered, and then held up.
#[derive(Debug, Default)]
struct Slow {
    rows: Versioned,
    reads: AtomicU64,
    go: Notify,
}

#[async_trait]
impl CasBackend for Slow {
    async fn read(&self, key: &Key) -> Result<VersionedRecord, StoreError> {
        let reads = self.reads.fetch_add(1, SeqCst);
        let seen = VersionedRecord { now: Timestamp(1_000_000 + 100 * reads), ..self.rows.read(key) };
        if reads == 0 {
            self.go.notified().await;
        }
        Ok(seen)
    }

    async fn swap(&self, key: &Key, seen: Version, next: Option<&Record>) -> Result<bool, StoreError> {
        Ok(self.rows.swap(key, seen, next))
    }
}

/// A correct backend, and yet: what A read, "nothing there", is true again when A writes.
#[tokio::test]
async fn a_claim_held_up_over_a_claim_and_its_deletion_gets_a_higher_number() {
    let store = Cas(Slow::default());
    let key = Identity::new(Scene::Mq, "cas", "k").key("tests").unwrap();
    let number = |claim| match claim {
        Claim::Acquired(grant) => grant.fencing,
        other => panic!("{other:?}"),
    };
    let (a, b) = (ask(key.clone(), 1), ask(key.clone(), 2));
    let (a, b) = tokio::join!(biased; store.claim(&a), async {
        let b = number(store.claim(&b).await.unwrap());
        let (delay, retention, error) = (Duration::ZERO, Duration::from_secs(60), "failed".into());
        let release = Release { kind: ReleaseKind::Delete, delay, retention, error };
        let held = ClaimHandle::unanswered(key.clone(), OwnerToken(2));
        assert_eq!(store.release(&held, &release).await.unwrap(), Settled::Done);
        assert_eq!(store.peek(&key).await.unwrap(), None, "deleted for everybody");
        store.0.go.notify_one();
        b
    });
    let a = number(a.unwrap());
    assert!(a > b, "{a} after {b}");
}
