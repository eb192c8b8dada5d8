//! A client other than the executor: it claims, has its effect, and then performs the steps of its script, in any
//! order. All steps are allowed, though many are unreasonable, and a store must withstand all of them.
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use idempotent_core::{
    Claim, ClaimHandle, ClaimRequest, Completion, Disposition, Fingerprint, InFlight, OnExpiry, Outcome, OwnerToken,
    Release, ReleaseKind, Settled, Store, StoreError,
};

use super::dice::fork;
use super::lookalike::{ORDERS, real};
use super::plan::{Step, Terms};
use super::process::lock;
use super::world::{Settles, Worker, World};

/// One run of a script.
pub(super) struct Script {
    pub(super) world: Arc<World>,
    pub(super) worker: Worker,
    /// The number of the run and its delivery, which makes its owner token unique.
    pub(super) name: u64,
    pub(super) key: u64,
    pub(super) payload: u64,
    pub(super) bare: bool,
    pub(super) steps: Vec<Step>,
}

impl Script {
    fn terms(&self) -> &Terms {
        &self.world.plan.workers[self.worker.place]
    }

    fn request(&self) -> ClaimRequest {
        let terms = self.terms();
        let mut dice = fork(self.world.plan.seed, 1_000_000 + self.name);
        let owner = OwnerToken(u128::from(dice.roll()) << 64 | u128::from(dice.roll()));
        lock(&self.world.scripted).insert(owner.0);
        let print = || Fingerprint::of_bytes(self.payload.to_le_bytes());
        ClaimRequest {
            key: real(ORDERS, self.key),
            owner,
            lease: Duration::from_millis(terms.lease_ms),
            fingerprint: (self.world.plan.fingerprints && !self.bare).then(print),
            max_attempts: terms.max_retries.map_or(0, |retries| retries + 1),
            on_expiry: if terms.park { OnExpiry::Park } else { OnExpiry::Takeover },
            retention: Duration::from_millis(terms.memory_ms),
            display: None,
        }
    }

    /// Returns the answer of the store, or `None` after a lease.
    async fn patiently<T>(&self, call: impl Future<Output = Result<T, StoreError>>) -> Option<T> {
        tokio::select! {
            biased;
            answer = call => answer.ok(),
            () = self.worker.clock.sleep(Duration::from_millis(self.terms().lease_ms)) => None,
        }
    }

    pub(super) async fn run(self) -> Settles {
        let request = self.request();
        let store = self.worker.wire.clone();
        let later = || retry(request.lease / 3);
        let Some(claim) = self.patiently(store.claim(&request)).await else { return later() };
        let Claim::Acquired(grant) = claim else { return turned(claim, request.lease) };
        let held = ClaimHandle::granted(&request, &grant);
        if !self.world.touch(&self.worker, ORDERS, self.key, Some(grant.fencing), false) {
            return later();
        }
        let (mut done, calm) = (false, [Step::Complete { value: 0 }]);
        for step in if self.world.is_calm() { &calm } else { &self.steps[..] } {
            done |= self.step(&store, &request, &held, *step).await;
        }
        if done { settles(Disposition::Ack, Some(Outcome::Ran)) } else { later() }
    }

    /// Performs a step. Returns whether the key is known to be completed.
    async fn step(&self, store: &impl Store, request: &ClaimRequest, held: &ClaimHandle, step: Step) -> bool {
        let terms = self.terms();
        let retention = Duration::from_millis(terms.memory_ms);
        let delay = request.lease / 4;
        let release = |verdict| Release { kind: verdict, delay, retention, error: "by its script".into() };
        let back = if terms.max_retries.is_some() { ReleaseKind::Vacate } else { ReleaseKind::Delete };
        match step {
            Step::Claim => drop(self.patiently(store.claim(request)).await),
            Step::Renew { lease_ms } => drop(self.patiently(store.renew(held, Duration::from_millis(lease_ms))).await),
            Step::Complete { value } => {
                let text = format!("{} {value} by its script {}", self.payload, self.name);
                let done = Completion {
                    value: Some(text.into_bytes().into()),
                    retain: Duration::from_millis(terms.retain_ms),
                };
                return self.patiently(store.complete(held, &done)).await == Some(Settled::Done);
            }
            Step::Release => drop(self.patiently(store.release(held, &release(back))).await),
            Step::Fail => drop(self.patiently(store.release(held, &release(ReleaseKind::MarkFailed))).await),
            Step::Wait { us } => self.worker.clock.sleep(Duration::from_micros(us)).await,
        }
        false
    }
}

fn settles(disposition: Disposition, outcome: Option<Outcome>) -> Settles {
    Settles { disposition, outcome, value: None }
}

fn retry(after: Duration) -> Settles {
    settles(Disposition::Retry { after: after.max(Duration::from_millis(1)) }, None)
}

fn turned(claim: Claim, lease: Duration) -> Settles {
    let dead_letter = |reason: &'static str| Disposition::DeadLetter { reason: reason.into() };
    match claim {
        Claim::Consumed(_) => settles(Disposition::Ack, Some(Outcome::Replayed)),
        Claim::Failed { .. } => settles(dead_letter("failed"), Some(Outcome::Failed)),
        Claim::Dead(dead) => settles(dead_letter("dead"), Some(Outcome::Dead { fencing: dead.fencing })),
        Claim::Mismatch => settles(dead_letter("another payload"), Some(Outcome::Mismatch)),
        Claim::InFlight(InFlight::Leased { rest }) | Claim::Delayed { rest } => retry(rest),
        Claim::InFlight(InFlight::Busy) | Claim::Acquired(_) => retry(lease / 3),
    }
}
