//! Several requests in one round trip.
use std::time::Duration;

use async_trait::async_trait;
use idempotent_core::protocol;
use idempotent_core::{Batch, Claim, ClaimHandle, ClaimRequest, Completion, Settled, StoreError};

use crate::RedisStore;
use crate::batching::call::ScriptCall;
use crate::store::replies;
use crate::store::{BUDGET, budget};

#[async_trait]
impl Batch for RedisStore {
    async fn claim_all(&self, requests: &[ClaimRequest]) -> Vec<Result<Claim, StoreError>> {
        let cache = &self.0.hub.cache;
        let generation = cache.generation();
        let cached: Vec<Option<Claim>> = requests.iter().map(|request| cache.lookup(request)).collect();
        let uncached =
            || requests.iter().zip(&cached).filter(|(_, cached)| cached.is_none()).map(|(request, _)| request);
        let calls: Vec<ScriptCall> =
            uncached().map(|request| ScriptCall::claim(request, generation.is_some())).collect();
        let budget = requests.iter().map(|request| budget(request.lease)).min().unwrap_or_default();
        let reply = self.0.call_all(&calls, budget).await;
        let mut claims = Vec::with_capacity(reply.len());
        for (request, reply) in uncached().zip(reply) {
            claims.push(match reply {
                Ok(reply) => self.granted(reply, request, generation).await,
                Err(error) => Err(error),
            });
        }
        let mut claims = claims.into_iter();
        let mut all = Vec::with_capacity(requests.len());
        for cached in &cached {
            all.extend(cached.clone().map(Ok).or_else(|| claims.next()));
        }
        all
    }

    async fn renew_all(&self, held: &[(ClaimHandle, Duration)]) -> Vec<Result<Settled, StoreError>> {
        let calls: Vec<ScriptCall> = held.iter().map(|(held, lease)| ScriptCall::renew(held, *lease)).collect();
        let reply = self.0.call_all(&calls, BUDGET).await;
        let replied = held.iter().zip(reply);
        replied
            .map(|((held, lease), reply)| {
                replies::settled(&reply?, |found, now| protocol::renew(found, held, *lease, now))
            })
            .collect()
    }

    async fn complete_all(&self, done: &[(ClaimHandle, Completion)]) -> Vec<Result<Settled, StoreError>> {
        self.complete_in_one_batch(done).await
    }
}
