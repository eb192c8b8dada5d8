//! Scripted histories that random schedules rarely produce.
use crate::common::PlainHandler;
use std::sync::Arc;
use std::time::Duration;

use idempotent::store::{Claim, ClaimHandle, ClaimRequest, OnExpiry, OwnerToken, Release, ReleaseKind};
use idempotent::{
    Call, Executor, Identity, Lease, MemoryStore, OnInFlight, OnLeaseLost, Policy, Rejection, Scene, Store,
};
use idempotent_testkit::{FOREVER, FaultStore, SeededEntropy, StoreOperation, VirtualClock};

use idempotent_simulator::{ProcessClock, Wire};

const LEASE: Duration = Duration::from_secs(30);

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

struct Stage {
    clock: VirtualClock,
    root: FaultStore,
    /// The worker's own way to the store, and its clock.
    store: FaultStore,
    process: ProcessClock,
    executor: Executor,
}

impl Stage {
    fn set(policy: Policy) -> Self {
        let clock = VirtualClock::new();
        let inner = MemoryStore::builder().clock(Arc::new(clock.clone())).build();
        let root = FaultStore::new(inner, &clock);
        let (store, process) = (root.worker("w"), ProcessClock::new(&clock, 0));
        let executor = Executor::builder(Wire::new(store.clone(), &process))
            .clock(Arc::new(process.clone()))
            .entropy(Arc::new(SeededEntropy::new(1)))
            .policy(Scene::Rest, policy)
            .build()
            .unwrap();
        Self { clock, root, store, process, executor }
    }

    fn identity() -> Identity {
        Identity::new(Scene::Rest, "orders", "o-1")
    }

    /// Claims the key for another worker, without faults.
    async fn claim(&self, owner: u128) -> (Claim, ClaimHandle) {
        let (key, owner) = (Self::identity().key("idempotent").unwrap(), OwnerToken(owner));
        let held = ClaimHandle::unanswered(key.clone(), owner);
        let (fingerprint, display) = (None, None);
        let (max_attempts, on_expiry) = (0, OnExpiry::Takeover);
        let request = ClaimRequest {
            key,
            owner,
            lease: LEASE,
            fingerprint,
            max_attempts,
            on_expiry,
            retention: secs(600),
            display,
        };
        (self.root.claim(&request).await.unwrap(), held)
    }

    /// A run that hands its lease out and works for `work`.
    fn run(
        &self,
        work: Duration,
    ) -> (tokio::task::JoinHandle<Result<u32, Rejection>>, Arc<std::sync::OnceLock<Lease>>) {
        let lease = Arc::new(std::sync::OnceLock::new());
        let (executor, process, out) = (self.executor.clone(), self.process.clone(), lease.clone());
        let run = tokio::spawn(async move {
            let handler = PlainHandler::new(|| async move {
                let _ = out.set(Lease::current().unwrap());
                process.sleep(work).await;
                Ok::<_, Rejection>(1)
            });
            executor.run(Call::new(Self::identity()), handler).await
        });
        (run, lease)
    }
}

/// The grant came too late to be used and is given back; the answer to that hangs. It must not hang the run.
#[tokio::test]
async fn giving_back_an_unused_grant_takes_no_longer_than_the_lease() {
    let stage = Stage::set(Policy::new().lease(LEASE));
    stage.store.hang(StoreOperation::Release, 1);
    stage.store.lose_reply(StoreOperation::Claim, 1);
    let (run, lease) = stage.run(secs(1));
    stage.clock.settle().await;
    // Stopped past the guard; the repeated claim is answered, and too late.
    stage.process.stop_for(secs(29));
    stage.clock.advance(secs(29)).await;
    assert!(lease.get().is_none(), "the handler must not start");
    stage.clock.advance(LEASE * 100).await;
    assert!(run.is_finished(), "the run hangs for ever on the release of a grant it did not use");
}

/// A waiting duplicate asks again and again by one token. An earlier asking, given up as lost, arrives in between and
/// is granted; the lease has then begun before the asking that hears of it was sent.
#[tokio::test]
async fn a_waiting_run_counts_its_lease_from_the_first_asking_that_may_have_been_granted() {
    let stage = Stage::set(Policy::new().lease(LEASE).on_in_flight(OnInFlight::Wait(secs(300))));
    let (_, held) = stage.claim(1).await;
    stage.store.delay(StoreOperation::Claim, secs(45));
    let (_run, lease) = stage.run(secs(60));
    stage.clock.settle().await;
    stage.store.heal();
    // Given up after a third of the lease, asked again: in flight until 40 s.
    stage.clock.advance(secs(10)).await;
    stage.root.renew(&held, LEASE).await.unwrap();
    stage.clock.advance(secs(28)).await;
    // Stopped from 38 s to 60 s. The first asking arrives at 45 s: granted until 75 s.
    stage.process.stop_for(secs(22));
    stage.clock.advance(secs(22)).await;
    // The start of the lease is unknown, so the key is returned without a run.
    let Some(lease) = lease.get().cloned() else { return };
    // No renewal gets through.
    stage.store.fail_before(StoreOperation::Renew, FOREVER);
    stage.clock.advance(secs(16)).await;
    let (other, _) = stage.claim(2).await;
    assert!(matches!(other, Claim::Acquired(_)), "76 s: the lease is over: {other:?}");
    assert!(lease.is_lost(), "granted to somebody else, and the lease claims to hold for {:?}", lease.remaining());
}

/// A worker continues after a takeover (`on_lease_lost = finish`). The other worker fails and releases the key. Then
/// an old copy of the first worker's claim arrives: its owner token holds the key again, with a new fencing token. The
/// completion of the worker belongs to the old claim.
#[tokio::test]
async fn a_superseded_run_stays_superseded_though_its_claim_comes_again() {
    let stage = Stage::set(Policy::new().lease(LEASE).on_lease_lost(OnLeaseLost::Finish));
    stage.store.delay(StoreOperation::Claim, secs(200));
    let (run, lease) = stage.run(secs(240));
    stage.clock.settle().await;
    stage.store.heal();
    // No renewal gets through: granted at 10 s, over at 40 s.
    stage.store.fail_before(StoreOperation::Renew, FOREVER);
    stage.clock.advance(secs(45)).await;
    let number = lease.get().unwrap().fencing();
    let (other, held) = stage.claim(2).await;
    let Claim::Acquired(other) = other else { panic!("45 s: the lease is over: {other:?}") };
    assert!(other.fencing > number);
    let release = Release { kind: ReleaseKind::Delete, delay: secs(0), retention: secs(600), error: "failed".into() };
    stage.root.release(&held, &release).await.unwrap();
    // At 200 s the old copy arrives, at 250 s the handler ends.
    stage.clock.advance(secs(300)).await;
    let answer = run.await.unwrap();
    assert!(
        matches!(answer, Err(Rejection::LeaseLost)),
        "begun under {number}, then {} was granted: {answer:?}",
        other.fencing
    );
}
