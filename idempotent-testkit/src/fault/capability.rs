//! The capabilities of the wrapped store, with faults in those that are calls.
use std::future::pending;
use std::time::Duration;

use async_trait::async_trait;
use idempotent_core::{
    Admin, ClaimHandle, FencingToken, Inspect, InspectedRecord, Key, KeyFilter, OrderStore, PageLimits, Purge,
    RecordPage, Search, Settled, StepRecord, StepStore, StoreCapabilities, StoreError, StoreErrorKind,
    StoredOrderTable, StoredSteps, Watch, Watching,
};

use super::{FaultStore, StoreAnswer, StoreOperation};

impl FaultStore {
    /// Returns only the capabilities of the wrapped store. Batch is left out on purpose.
    pub(super) fn forwarded(&self) -> StoreCapabilities<'_> {
        let inner = self.shared.inner.capabilities();
        let mut capabilities = StoreCapabilities::none();
        if inner.watch.is_some() {
            capabilities = capabilities.with_watch(self);
        }
        if inner.search.is_some() {
            capabilities = capabilities.with_search(self);
        }
        if inner.purge.is_some() {
            capabilities = capabilities.with_purge(self);
        }
        if inner.admin.is_some() {
            capabilities = capabilities.with_admin(self);
        }
        if inner.inspect.is_some() {
            capabilities = capabilities.with_inspect(self);
        }
        if inner.steps.is_some() {
            capabilities = capabilities.with_steps(self);
        }
        if inner.order.is_some() {
            capabilities = capabilities.with_order(self);
        }
        if let Some(nodes) = inner.nodes {
            capabilities = capabilities.with_nodes(nodes);
        }
        capabilities
    }
}

/// Returns the error for a missing capability, which [`FaultStore::forwarded`] never offers.
fn missing(capability: &str) -> StoreError {
    StoreError::new(StoreErrorKind::NotApplied)
        .because(format!("the store underneath has no capability to {capability}"))
}

/// A killed handle gets no notification. All other handles use the watch of the wrapped store.
impl Watch for FaultStore {
    fn watch(&self, key: &Key) -> Watching {
        match self.shared.inner.capabilities().watch {
            Some(inner) if !self.script().dead => inner.watch(key),
            _ => Box::pin(pending()),
        }
    }
}

#[async_trait]
impl Search for FaultStore {
    async fn search(
        &self,
        filter: &KeyFilter,
        after: Option<u128>,
        limits: PageLimits,
    ) -> Result<RecordPage, StoreError> {
        let call = async {
            let search = self.shared.inner.capabilities().search.ok_or_else(|| missing("search"))?;
            search.search(filter, after, limits).await
        };
        self.call(StoreOperation::Search, None, None, call, |page| StoreAnswer::Count(page.entries.len())).await
    }
}

#[async_trait]
impl Purge for FaultStore {
    async fn purge(&self, at_most: usize) -> Result<usize, StoreError> {
        let call = async {
            let purge = self.shared.inner.capabilities().purge.ok_or_else(|| missing("purge"))?;
            purge.purge(at_most).await
        };
        self.call(StoreOperation::Purge, None, None, call, |removed| StoreAnswer::Count(*removed)).await
    }
}

#[async_trait]
impl Admin for FaultStore {
    async fn forget(
        &self,
        key: &Key,
        expected: FencingToken,
        force: bool,
        retention: Duration,
    ) -> Result<Settled, StoreError> {
        let call = async {
            let admin = self.shared.inner.capabilities().admin.ok_or_else(|| missing("forget"))?;
            admin.forget(key, expected, force, retention).await
        };
        self.call(StoreOperation::Forget, Some(key), None, call, |settled| StoreAnswer::Settled(*settled)).await
    }
}

/// An inspection uses the faults and the log of a peek, since it only adds the time.
#[async_trait]
impl Inspect for FaultStore {
    async fn inspect(&self, key: &Key) -> Result<Option<InspectedRecord>, StoreError> {
        let call = async {
            let inspect = self.shared.inner.capabilities().inspect.ok_or_else(|| missing("inspect"))?;
            inspect.inspect(key).await
        };
        self.call(StoreOperation::Peek, Some(key), None, call, |seen| {
            StoreAnswer::Peeked(seen.as_ref().map(|seen| seen.record.clone()))
        })
        .await
    }
}

#[async_trait]
impl StepStore for FaultStore {
    async fn steps(&self, held: &ClaimHandle, keep: Duration) -> Result<StoredSteps, StoreError> {
        let call = async {
            let journal = self.shared.inner.capabilities().steps.ok_or_else(|| missing("keep steps"))?;
            journal.steps(held, keep).await
        };
        let count = |answer: &StoredSteps| match answer {
            StoredSteps::Steps(steps) => StoreAnswer::Count(steps.len()),
            StoredSteps::Lost { now } => StoreAnswer::Settled(Settled::Lost { now: *now }),
        };
        self.call(StoreOperation::Steps, Some(&held.key), Some(held.owner), call, count).await
    }

    async fn note(&self, held: &ClaimHandle, step: &StepRecord, keep: Duration) -> Result<Settled, StoreError> {
        let call = async {
            let journal = self.shared.inner.capabilities().steps.ok_or_else(|| missing("keep steps"))?;
            journal.note(held, step, keep).await
        };
        self.call(StoreOperation::Note, Some(&held.key), Some(held.owner), call, |settled| {
            StoreAnswer::Settled(*settled)
        })
        .await
    }
}

#[async_trait]
impl OrderStore for FaultStore {
    async fn load(&self, stream: &Key) -> Result<StoredOrderTable, StoreError> {
        let call = async {
            let order = self.shared.inner.capabilities().order.ok_or_else(|| missing("keep order tables"))?;
            order.load(stream).await
        };
        self.call(StoreOperation::Line, Some(stream), None, call, |lined| {
            StoreAnswer::Count(lined.table.is_some().into())
        })
        .await
    }

    async fn compare_and_swap(
        &self,
        stream: &Key,
        seen: Option<&[u8]>,
        next: &[u8],
        keep: Duration,
    ) -> Result<bool, StoreError> {
        let call = async {
            let order = self.shared.inner.capabilities().order.ok_or_else(|| missing("keep order tables"))?;
            order.compare_and_swap(stream, seen, next, keep).await
        };
        self.call(StoreOperation::CompareAndSwap, Some(stream), None, call, |done| StoreAnswer::Count((*done).into()))
            .await
    }
}
