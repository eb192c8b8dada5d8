//! Several requests in one trip.
use std::time::Duration;

use async_trait::async_trait;
use idempotent_core::protocol;
use idempotent_core::{Batch, Claim, ClaimRequest, Completion, Held, Settled, StoreError};

use crate::RedisStore;
use crate::batching::call::Call;
use crate::store::replies;
use crate::store::{BUDGET, budget};

#[async_trait]
impl Batch for RedisStore {
    async fn claim_all(&self, requests: &[ClaimRequest]) -> Vec<Result<Claim, StoreError>> {
        let (topology, cache) = (&self.0.topology, &self.0.hub.cache);
        let asked = cache.asked();
        let known: Vec<Option<Claim>> = requests.iter().map(|request| cache.answer(request)).collect();
        let unknown = || requests.iter().zip(&known).filter(|(_, known)| known.is_none()).map(|(request, _)| request);
        let calls: Vec<Call> = unknown().map(|request| Call::claim(request, asked.is_some())).collect();
        let budget = requests.iter().map(|request| budget(request.lease)).min().unwrap_or_default();
        let said = topology.ask_all(&calls.iter().collect::<Vec<_>>(), budget).await;
        let mut told = Vec::with_capacity(said.len());
        for (request, said) in unknown().zip(said) {
            told.push(match said {
                Ok(said) => self.granted(said, request, asked).await,
                Err(error) => Err(error),
            });
        }
        let mut told = told.into_iter();
        let mut all = Vec::with_capacity(requests.len());
        for known in &known {
            all.extend(known.clone().map(Ok).or_else(|| told.next()));
        }
        all
    }

    async fn renew_all(&self, held: &[(Held, Duration)]) -> Vec<Result<Settled, StoreError>> {
        let calls: Vec<Call> = held.iter().map(|(held, lease)| Call::renew(held, *lease)).collect();
        let said = self.0.topology.ask_all(&calls.iter().collect::<Vec<_>>(), BUDGET).await;
        let told = held.iter().zip(said);
        told.map(|((held, lease), said)| {
            replies::settled(&said?, |found, now| protocol::renew(found, held, *lease, now))
        })
        .collect()
    }

    async fn complete_all(&self, done: &[(Held, Completion)]) -> Vec<Result<Settled, StoreError>> {
        let asked = self.0.hub.cache.asked();
        let calls: Vec<Call> = done.iter().map(|(held, completion)| Call::complete(held, completion)).collect();
        let said = self.0.topology.ask_all(&calls.iter().collect::<Vec<_>>(), BUDGET).await;
        let told = done.iter().zip(said);
        told.map(|((held, completion), said)| self.completed(held, completion, asked, &said?)).collect()
    }
}
