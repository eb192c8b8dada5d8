//! A fast tier with a durable store: the answers of the fast tier, and the loss of its data.

mod batches;
mod crashes;
mod duplicates;
mod expiry;
mod laws;
mod operator_deletion;
mod unreliable_tiers;

use std::sync::Arc;

use crate::common::{Worker, World, secs};
use idempotent::store::{CacheTier, Claim, ClaimHandle, ClaimRequest, Completion, MemoryTier, OwnerToken, Settled};
use idempotent::{Executor, Policy, Scene, Store, TieredStore};
use idempotent_testkit::SeededEntropy;
use tokio::task::JoinHandle;

/// A fast tier by the world's clock.
fn tier(world: &World) -> MemoryTier {
    MemoryTier::holding(1_000, Arc::new(world.clock.clone()))
}

/// A process with this fast tier over the world's store.
fn worker(world: &World, name: &str, fast: impl CacheTier) -> (Worker, TieredStore) {
    let worker = world.worker(name, Policy::new());
    let clock = Arc::new(world.clock.clone());
    let store = TieredStore::builder(worker.store.clone(), fast).clock(clock.clone()).build();
    let executor = Executor::builder(store.clone())
        .clock(clock)
        .entropy(Arc::new(SeededEntropy::new(name.len() as u64 + 100 * u64::from(name.as_bytes()[0]))))
        .policy(Scene::Mq, Policy::new().jitter(0))
        .build()
        .unwrap();
    (Worker { executor, ..worker }, store)
}

/// Creates a claim request like that of an executor.
fn ask(key: &str, owner: u128) -> ClaimRequest {
    crate::common::ask(crate::common::key_of(key), owner)
}

fn held(key: &str, owner: u128) -> ClaimHandle {
    ClaimHandle::unanswered(crate::common::key_of(key), OwnerToken(owner))
}

fn done(value: &[u8], seconds: u64) -> Completion {
    Completion { value: Some(value.into()), retain: secs(seconds) }
}

/// Completes `k` for its owner 1 in a task of its own.
fn spawn_completion(store: &TieredStore, seconds: u64) -> JoinHandle<Settled> {
    let store = store.clone();
    tokio::spawn(async move { store.complete(&held("k", 1), &done(b"v", seconds)).await.unwrap() })
}

#[track_caller]
fn assert_acquired(claim: &Claim) {
    assert!(matches!(claim, Claim::Acquired(_)), "{claim:?}");
}

#[track_caller]
fn assert_consumed(claim: &Claim, value: &[u8]) {
    assert!(matches!(claim, Claim::Consumed(consumed) if consumed.value.as_deref() == Some(value)), "{claim:?}");
}
