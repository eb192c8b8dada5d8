//! Claims, renewals and completions, one at a time and many at once.
use std::time::Duration;

use async_trait::async_trait;

use super::{MemoryStore, SWEEP_LIMIT};
use crate::{Batch, Claim, ClaimHandle, ClaimRequest, Completion, Settled, StateKind, StoreError, protocol};

impl MemoryStore {
    pub(super) fn claim_now(&self, request: &ClaimRequest) -> Result<Claim, StoreError> {
        let claim = || self.update(&request.key, |found, now| protocol::claim(found, request, now));
        // A full store first removes expired records.
        claim()
            .or_else(|| if self.sweep(SWEEP_LIMIT) > 0 { claim() } else { None })
            .ok_or_else(|| self.full_of_records())
    }

    pub(super) fn renew_now(&self, held: &ClaimHandle, lease: Duration) -> Settled {
        let renewed = self.update(&held.key, |found, now| protocol::renew(found, held, lease, now));
        renewed.unwrap_or(Settled::Lost { now: StateKind::Absent })
    }

    pub(super) fn complete_now(&self, held: &ClaimHandle, completion: &Completion) -> Settled {
        self.settle(&held.key, |found, now| protocol::complete(found, held, completion, now))
    }
}

#[async_trait]
impl Batch for MemoryStore {
    async fn claim_all(&self, requests: &[ClaimRequest]) -> Vec<Result<Claim, StoreError>> {
        requests.iter().map(|request| self.claim_now(request)).collect()
    }

    async fn renew_all(&self, held: &[(ClaimHandle, Duration)]) -> Vec<Result<Settled, StoreError>> {
        held.iter().map(|(held, lease)| Ok(self.renew_now(held, *lease))).collect()
    }

    async fn complete_all(&self, done: &[(ClaimHandle, Completion)]) -> Vec<Result<Settled, StoreError>> {
        done.iter().map(|(held, completion)| Ok(self.complete_now(held, completion))).collect()
    }
}
