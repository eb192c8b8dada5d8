//! A custom store in two methods whose claims are held up between reading and writing.
use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use async_trait::async_trait;
use idempotent::{
    Cas, CasBackend, Claim, ClaimRequest, Held, Identity, Key, Micros, OnExpiry, OwnerToken, Record, Release, Scene,
    Seen, Settled, Store, StoreError, Verdict, Version,
};
use tokio::sync::Notify;

/// A map with versions for the whole store; the first read is answered, and then held up.
#[derive(Debug, Default)]
struct Slow {
    rows: Mutex<HashMap<Key, (Version, Record)>>,
    versions: AtomicU64,
    reads: AtomicU64,
    now: AtomicU64,
    go: Notify,
}

#[async_trait]
impl CasBackend for Slow {
    async fn read(&self, key: &Key) -> Result<Seen, StoreError> {
        let row = self.rows.lock().unwrap().get(key).cloned();
        let now = Micros(1_000_000 + self.now.fetch_add(100, SeqCst));
        if self.reads.fetch_add(1, SeqCst) == 0 {
            self.go.notified().await;
        }
        Ok(Seen { version: row.as_ref().map_or(0, |row| row.0), record: row.map(|row| row.1), now })
    }

    async fn swap(&self, key: &Key, seen: Version, next: Option<&Record>) -> Result<bool, StoreError> {
        let mut rows = self.rows.lock().unwrap();
        if rows.get(key).map_or(0, |row| row.0) != seen {
            return Ok(false);
        }
        match next {
            Some(next) => rows.insert(key.clone(), (self.versions.fetch_add(1, SeqCst) + 1, next.clone())),
            None => rows.remove(key),
        };
        Ok(true)
    }
}

/// A correct backend, and yet: what A read, "nothing there", is true again when A writes.
#[tokio::test]
async fn i6_a_claim_held_up_over_a_claim_and_its_deletion_gets_a_higher_number() {
    let store = Cas(Slow::default());
    let key = Identity::new(Scene::Mq, "cas", "k").key("tests").unwrap();
    let ask = |owner| ClaimRequest {
        key: key.clone(),
        owner: OwnerToken(owner),
        lease: Duration::from_secs(60),
        fingerprint: None,
        max_attempts: 0,
        on_expiry: OnExpiry::Takeover,
        memory: Duration::from_secs(60),
        display: None,
    };
    let number = |claim| match claim {
        Claim::Acquired(grant) => grant.fencing,
        other => panic!("{other:?}"),
    };
    let (a, b) = (ask(1), ask(2));
    let (a, b) = tokio::join!(biased; store.claim(&a), async {
        let b = number(store.claim(&b).await.unwrap());
        let (delay, memory, error) = (Duration::ZERO, Duration::from_secs(60), "failed".into());
        let release = Release { verdict: Verdict::Delete, delay, memory, error };
        let held = Held::unanswered(key.clone(), OwnerToken(2));
        assert_eq!(store.release(&held, &release).await.unwrap(), Settled::Done);
        assert_eq!(store.peek(&key).await.unwrap(), None, "deleted for everybody");
        store.0.go.notify_one();
        b
    });
    let a = number(a.unwrap());
    assert!(a > b, "{a} after {b}");
}
