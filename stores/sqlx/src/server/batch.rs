//! Batches: several requests in one round trip. A request that the batch statement cannot answer, such as a takeover, is
//! sent alone.
use std::collections::{HashMap, HashSet};
use std::future::Future;
use std::time::Duration;

use futures_util::future::join_all;
use idempotent_core::protocol::Write;
use idempotent_core::{Claim, ClaimHandle, ClaimRequest, Completion, Key, Settled, StoreError};

use super::dialect::{BatchKind, Dialect};
use super::error::is_full;
use super::requests::{decide, owned};
use super::runner::StatementResult;
use super::store::ServerStore;
use crate::row::{self, micros};

/// The number of requests in one statement.
const CHUNK: usize = 256;
/// The number of requests of a batch that are sent alone at the same time, each on a connection.
const ALONE: usize = 4;

/// A kind of request that one statement takes many of.
pub(crate) trait BatchItem<D: Dialect>: Clone + Send + Sync + 'static {
    type Answer: Send;

    fn key(&self) -> &Key;

    /// Sends all requests of `chunk` in one round trip.
    fn together(
        store: &ServerStore<D>,
        chunk: &[Self],
    ) -> impl Future<Output = Result<BatchResults<Self::Answer>, StoreError>> + Send;

    fn alone(&self, store: &ServerStore<D>) -> impl Future<Output = Result<Self::Answer, StoreError>> + Send;
}

impl<D: Dialect> BatchItem<D> for ClaimRequest {
    type Answer = Claim;

    fn key(&self) -> &Key {
        &self.key
    }

    async fn together(store: &ServerStore<D>, chunk: &[Self]) -> Result<BatchResults<Claim>, StoreError> {
        store.claim_chunk(chunk).await
    }

    async fn alone(&self, store: &ServerStore<D>) -> Result<Claim, StoreError> {
        store.claim(self).await
    }
}

/// A renewal.
impl<D: Dialect> BatchItem<D> for (ClaimHandle, Duration) {
    type Answer = Settled;

    fn key(&self) -> &Key {
        &self.0.key
    }

    async fn together(store: &ServerStore<D>, chunk: &[Self]) -> Result<BatchResults<Settled>, StoreError> {
        let ask = |(held, lease): &Self| owned(held).into_iter().chain([micros(*lease).into()]).collect();
        results(D::settle_all(store, &BatchKind::Renew, chunk.iter().map(ask).collect()).await?)
    }

    async fn alone(&self, store: &ServerStore<D>) -> Result<Settled, StoreError> {
        store.renew(&self.0, self.1).await
    }
}

impl<D: Dialect> BatchItem<D> for (ClaimHandle, Completion) {
    type Answer = Settled;

    fn key(&self) -> &Key {
        &self.0.key
    }

    async fn together(store: &ServerStore<D>, chunk: &[Self]) -> Result<BatchResults<Settled>, StoreError> {
        let small = |(_, done): &&Self| done.value.as_deref().map_or(0, <[u8]>::len) <= store.dialect.most();
        let ask = |(held, done): &Self| {
            let value = done.value.as_deref().map(<[u8]>::to_vec);
            owned(held).into_iter().chain([value.into(), micros(done.retain).into()]).collect()
        };
        match D::settle_all(store, &BatchKind::Complete, chunk.iter().filter(small).map(ask).collect()).await {
            // Each is sent alone, and leaves out its result if the disk has no room for it.
            Err(error) if is_full::<D>(&error) => Ok(HashMap::new()),
            sent => results(sent?),
        }
    }

    async fn alone(&self, store: &ServerStore<D>) -> Result<Settled, StoreError> {
        store.complete(&self.0, &self.1).await
    }
}

/// The results of a batch statement by the hash of the key. The request of a missing key is sent alone.
pub(crate) type BatchResults<T> = HashMap<u128, Result<T, StoreError>>;

impl<D: Dialect> ServerStore<D> {
    pub(crate) async fn in_chunks<A: BatchItem<D>>(&self, asks: &[A]) -> Vec<Result<A::Answer, StoreError>> {
        let mut answers: Vec<Option<Result<A::Answer, StoreError>>> = asks.iter().map(|_| None).collect();
        // The first request of each key. Further requests of a key are sent after the first is answered.
        let mut seen = HashSet::new();
        let firsts: Vec<usize> = (0..asks.len()).filter(|at| seen.insert(asks[*at].key().hash())).collect();
        for places in firsts.chunks(CHUNK) {
            let mut chunk: Vec<A> = places.iter().map(|at| asks[*at].clone()).collect();
            // Concurrent batches lock keys in the same order.
            chunk.sort_unstable_by_key(|ask| ask.key().hash());
            let mut told = A::together(self, &chunk).await;
            for at in places {
                answers[*at] = match &mut told {
                    Ok(told) => told.remove(&asks[*at].key().hash()),
                    Err(error) => Some(Err(again(error))),
                };
            }
        }
        let left: Vec<usize> = firsts.into_iter().filter(|at| answers[*at].is_none()).collect();
        for some in left.chunks(ALONE) {
            let told = join_all(some.iter().map(|at| asks[*at].alone(self))).await;
            for (at, told) in some.iter().zip(told) {
                answers[*at] = Some(told);
            }
        }
        let mut all = Vec::with_capacity(asks.len());
        for (ask, answer) in asks.iter().zip(answers) {
            all.push(match answer {
                Some(answer) => answer,
                None => ask.alone(self).await,
            });
        }
        all
    }

    async fn claim_chunk(&self, chunk: &[ClaimRequest]) -> Result<BatchResults<Claim>, StoreError> {
        if let Err(full) = self.store_lost_result().await {
            let mut told = HashMap::new();
            for request in chunk {
                told.insert(request.key.hash(), self.existing(request).await?.ok_or_else(|| again(&full)));
            }
            return Ok(told);
        }
        let claims = chunk.iter().map(|request| self.claiming(request)).collect();
        let StatementResult::Done(rows) = D::claim_all(self, claims).await? else { return Ok(HashMap::new()) };
        let requests: HashMap<u128, &ClaimRequest> =
            chunk.iter().map(|request| (request.key.hash(), request)).collect();
        let mut told = HashMap::new();
        for row in &rows {
            let Some((hash, request)) = row::id(row)?.and_then(|hash| Some((hash, requests.get(&hash)?))) else {
                continue;
            };
            match self.seen(row).map(|seen| decide(&seen, request)) {
                Ok((answer, Write::Keep)) => drop(told.insert(hash, Ok(answer))),
                // A takeover, or a vacant key: sent alone.
                Ok(_) => {}
                Err(error) => drop(told.insert(hash, Err(error))),
            }
        }
        Ok(told)
    }
}

fn results(sent: StatementResult<Vec<u128>>) -> Result<BatchResults<Settled>, StoreError> {
    let StatementResult::Done(written) = sent else { return Ok(HashMap::new()) };
    Ok(written.into_iter().map(|hash| (hash, Ok(Settled::Done))).collect())
}

/// Returns a copy of the error for another request of the same round trip.
fn again(error: &StoreError) -> StoreError {
    StoreError::new(error.kind()).because(error.to_string())
}
