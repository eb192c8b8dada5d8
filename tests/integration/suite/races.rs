//! Claims that meet, on real threads.
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use async_trait::async_trait;
use idempotent::store::{
    Cas, CasBackend, Claim, ClaimHandle, OwnerToken, Record, Release, ReleaseKind, Settled, Version, VersionedRecord,
};
use idempotent::{Identity, Key, MemoryStore, Scene, SqliteStore, Store, StoreError};
use tokio::sync::Barrier;

use crate::cas::Versioned;
use crate::common::ask;

const CLAIMS: u128 = 50;
const ROUNDS: u64 = 1000;

fn key(round: u64) -> Key {
    Identity::new(Scene::Mq, "race", &round).key("races").unwrap()
}

/// All at once; the owners that got the key.
async fn race(store: &Arc<dyn Store>, key: &Key) -> Vec<(u128, u64)> {
    let barrier = Arc::new(Barrier::new(usize::try_from(CLAIMS).unwrap()));
    let mut claims = tokio::task::JoinSet::new();
    for owner in 1..=CLAIMS {
        let (store, request, barrier) = (store.clone(), ask(key.clone(), owner), barrier.clone());
        claims.spawn(async move {
            barrier.wait().await;
            (owner, store.claim(&request).await.unwrap())
        });
    }
    let won = |(owner, claim)| match claim {
        Claim::Acquired(grant) => Some((owner, grant.fencing.0)),
        Claim::InFlight(_) => None,
        other => panic!("{other:?}"),
    };
    claims.join_all().await.into_iter().filter_map(won).collect()
}

async fn one_of_50_claims_wins(store: Arc<dyn Store>) {
    for round in 0..ROUNDS {
        let key = key(round % 7);
        let winners = race(&store, &key).await;
        assert_eq!(winners.len(), 1, "round {round}: {winners:?}");
        // Free again for the next: deleted, or vacant.
        let verdict = if round % 2 == 0 { ReleaseKind::Delete } else { ReleaseKind::Vacate };
        let retention = Duration::from_secs(60);
        let release = Release { kind: verdict, delay: Duration::ZERO, retention, error: "next".into() };
        let held = ClaimHandle::unanswered(key, OwnerToken(winners[0].0));
        assert_eq!(store.release(&held, &release).await.unwrap(), Settled::Done);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn one_of_50_claims_wins_on_memory() {
    one_of_50_claims_wins(Arc::new(MemoryStore::new())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn one_of_50_claims_wins_on_sqlite() {
    let dir = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(dir.path().join("race.db").to_str().unwrap()).await.unwrap();
    one_of_50_claims_wins(Arc::new(store)).await;
}

/// A map whose record may vanish between the read and the swap.
#[derive(Debug, Default)]
struct Vanishing {
    rows: Versioned,
    vanish: AtomicU64,
}

#[async_trait]
impl CasBackend for Vanishing {
    async fn read(&self, key: &Key) -> Result<VersionedRecord, StoreError> {
        let seen = self.rows.read(key);
        tokio::task::yield_now().await; // room for another writer
        if self.vanish.fetch_update(SeqCst, SeqCst, |n| n.checked_sub(1)).is_ok() {
            self.rows.remove(key);
        }
        Ok(seen)
    }

    async fn swap(&self, key: &Key, seen: Version, next: Option<&Record>) -> Result<bool, StoreError> {
        Ok(self.rows.swap(key, seen, next))
    }
}

/// A marker that vanishes between the read and the write of a claim leads to a new claim, and never to an unprotected
/// run.
#[tokio::test]
async fn a_marker_that_vanishes_is_claimed_again() {
    let backend = Vanishing::default();
    backend.vanish.store(0, SeqCst);
    let store: Arc<dyn Store> = Arc::new(Cas(backend));
    let vanish = Arc::new(Cas(Vanishing::default()));
    let held = key(1);
    vanish.claim(&ask(held.clone(), 1)).await.unwrap();
    let release = |owner| {
        let (retention, delay) = (Duration::from_secs(60), Duration::ZERO);
        let release = Release { kind: ReleaseKind::Vacate, delay, retention, error: "next".into() };
        (ClaimHandle::unanswered(held.clone(), OwnerToken(owner)), release)
    };
    let (by, how) = release(1);
    vanish.release(&by, &how).await.unwrap();
    // The vacant record goes while two claims are between read and swap: one of them gets the key.
    vanish.0.vanish.store(1, SeqCst);
    let (first, second) = (ask(held.clone(), 2), ask(held.clone(), 3));
    let (one, two) = tokio::join!(vanish.claim(&first), vanish.claim(&second));
    let acquired = [one.unwrap(), two.unwrap()].iter().filter(|claim| matches!(claim, Claim::Acquired(_))).count();
    assert_eq!(acquired, 1);
    for round in 0..100 {
        assert_eq!(race(&store, &key(1000 + round)).await.len(), 1);
    }
}
