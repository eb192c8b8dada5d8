//! The optional capabilities of a tiered store, which forward to the durable store and update the fast tier.
use std::future::pending;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::join_all;

use super::{RecalledClaim, TieredStore};
use crate::store::{
    Admin, Batch, Inspect, InspectedRecord, KeyFilter, PageLimits, Purge, RecordPage, Search, StoreCapabilities, Watch,
    Watching,
};
use crate::{Claim, ClaimHandle, ClaimRequest, Completion, FencingToken, Key, Settled, StoreError, StoreErrorKind};

impl TieredStore {
    /// Returns the capabilities that the durable store has.
    pub(super) fn forwarded(&self) -> StoreCapabilities<'_> {
        let durable = self.0.durable.capabilities();
        StoreCapabilities {
            batch: durable.batch.map(|_| self as _),
            watch: durable.watch.map(|_| self as _),
            search: durable.search.map(|_| self as _),
            purge: durable.purge.map(|_| self as _),
            admin: durable.admin.map(|_| self as _),
            inspect: durable.inspect.map(|_| self as _),
            // The fast tier holds no keys in flight.
            steps: durable.steps,
            order: durable.order,
            browse_order: durable.browse_order,
            // Such runs bypass the fast tier, whose facts stay true.
            transact: durable.transact,
            // A renewal changes nothing that the fast tier keeps.
            renewal: durable.renewal,
            health: durable.health,
            // A claim that the cache does not answer is answered by the durable tier, whose failure rejects it.
            nodes: durable.nodes,
        }
    }

    async fn bar(&self, key: &Key) {
        let _ = self.within_patience(self.0.fast.bar(key, self.0.max_age)).await;
    }
}

/// Returns the error of a missing capability. Never reached through [`TieredStore::forwarded`], which omits missing
/// capabilities.
fn missing(capability: &str) -> StoreError {
    StoreError::new(StoreErrorKind::NotApplied).because(format!("the durable store cannot {capability}"))
}

fn all_missing<T>(requests: usize) -> Vec<Result<T, StoreError>> {
    (0..requests).map(|_| Err(missing("take several requests in one round trip"))).collect()
}

#[async_trait]
impl Batch for TieredStore {
    async fn claim_all(&self, requests: &[ClaimRequest]) -> Vec<Result<Claim, StoreError>> {
        let Some(batch) = self.0.durable.capabilities().batch else { return all_missing(requests.len()) };
        let recalled = join_all(requests.iter().map(|request| self.recall(request))).await;
        let unknown = |recalled: &RecalledClaim| !matches!(recalled, RecalledClaim::Known(_));
        let open: Vec<_> =
            requests.iter().zip(&recalled).filter(|(_, is)| unknown(is)).map(|(request, _)| request.clone()).collect();
        let decided = if open.is_empty() { Vec::new() } else { batch.claim_all(&open).await };
        let duplicates = open
            .iter()
            .zip(&decided)
            .zip(recalled.iter().filter(|is| unknown(is)))
            .filter(|answered| matches!(answered, ((_, Ok(Claim::Consumed(_))), RecalledClaim::Unknown)));
        join_all(duplicates.map(|((request, _), _)| self.repair_fact(&request.key))).await;
        let mut decided = decided.into_iter();
        let unanswered = || {
            Err(StoreError::new(StoreErrorKind::Ambiguous)
                .because("the durable store returned too few answers to a batch of claims"))
        };
        let merged = recalled.into_iter().map(|recalled| match recalled {
            RecalledClaim::Known(claim) => Ok(claim),
            RecalledClaim::Unknown | RecalledClaim::Failed => decided.next().unwrap_or_else(unanswered),
        });
        merged.collect()
    }

    async fn renew_all(&self, held: &[(ClaimHandle, Duration)]) -> Vec<Result<Settled, StoreError>> {
        match self.0.durable.capabilities().batch {
            Some(batch) => batch.renew_all(held).await,
            None => all_missing(held.len()),
        }
    }

    async fn complete_all(&self, done: &[(ClaimHandle, Completion)]) -> Vec<Result<Settled, StoreError>> {
        let Some(batch) = self.0.durable.capabilities().batch else { return all_missing(done.len()) };
        let settled = batch.complete_all(done).await;
        let completed = done.iter().zip(&settled).filter(|(_, settled)| matches!(settled, Ok(Settled::Done)));
        join_all(completed.map(|((held, _), _)| self.remember_completion(&held.key))).await;
        settled
    }
}

impl Watch for TieredStore {
    fn watch(&self, key: &Key) -> Watching {
        self.0.durable.capabilities().watch.map_or_else(|| Box::pin(pending()) as Watching, |watch| watch.watch(key))
    }
}

#[async_trait]
impl Search for TieredStore {
    async fn search(
        &self,
        filter: &KeyFilter,
        after: Option<u128>,
        limits: PageLimits,
    ) -> Result<RecordPage, StoreError> {
        self.0.durable.capabilities().search.ok_or_else(|| missing("search"))?.search(filter, after, limits).await
    }
}

#[async_trait]
impl Purge for TieredStore {
    async fn purge(&self, at_most: usize) -> Result<usize, StoreError> {
        self.0.durable.capabilities().purge.ok_or_else(|| missing("purge"))?.purge(at_most).await
    }
}

#[async_trait]
impl Inspect for TieredStore {
    async fn inspect(&self, key: &Key) -> Result<Option<InspectedRecord>, StoreError> {
        self.0.durable.capabilities().inspect.ok_or_else(|| missing("inspect"))?.inspect(key).await
    }
}

#[async_trait]
impl Admin for TieredStore {
    /// Forgets a key between two bars.
    ///
    /// The first bar removes a known fact, so that no claim is answered by it even if the rest is never done. A fact
    /// read before the record was forgotten may be used for `max_age` after the read. The second bar begins later and
    /// lasts as long.
    async fn forget(
        &self,
        key: &Key,
        expected: FencingToken,
        force: bool,
        retention: Duration,
    ) -> Result<Settled, StoreError> {
        let admin = self.0.durable.capabilities().admin.ok_or_else(|| missing("forget"))?;
        self.bar(key).await;
        let settled = admin.forget(key, expected, force, retention).await;
        if !matches!(settled, Ok(Settled::Lost { .. })) {
            self.bar(key).await;
        }
        settled
    }
}
