//! What a task carries: the executor in scope, the lease it runs under, the slot to report to.
use std::future::Future;
use std::sync::Arc;

use crate::outcome::OutcomeSlot;
use crate::{Captured, Executor, Key, Lease, Outcome, Redelivery};

tokio::task_local! {
    static CURRENT: TaskContext;
}

#[derive(Clone, Debug, Default)]
pub(crate) struct TaskContext {
    pub(crate) executor: Option<Executor>,
    pub(crate) lease: Option<Lease>,
    pub(crate) slot: Option<OutcomeSlot>,
    /// Leases of runs around this place that are not this place's own: of a batch handler's items, or outside of an
    /// unprotected run.
    pub(crate) outer_leases: Option<Arc<[Lease]>>,
    /// How the broker redelivers what is handled here.
    pub(crate) redelivery: Option<Arc<Redelivery>>,
    /// Which attempt the delivery that is handled here is, by its own mark.
    pub(crate) delivery_attempt: Option<u32>,
}

impl TaskContext {
    /// Whether a run stands around this place.
    pub(crate) fn is_nested(&self) -> bool {
        self.lease.is_some() || self.outer_leases.is_some()
    }

    /// With its own lease among those around it.
    pub(crate) fn with_outer_leases(self) -> Self {
        let leases: Vec<_> =
            self.outer_leases.iter().flat_map(|leases| &**leases).chain(&self.lease).cloned().collect();
        let outer_leases = (!leases.is_empty()).then(|| leases.into());
        Self { outer_leases, ..self }
    }

    /// The scope of the run around this place that has this key.
    pub(crate) fn scope_of_run(&self, key: &Key) -> Option<&str> {
        self.lease
            .iter()
            .chain(self.outer_leases.iter().flat_map(|leases| &**leases))
            .find_map(|lease| lease.scope_of_run(key))
    }

    pub(crate) fn current() -> Self {
        CURRENT.try_with(Clone::clone).unwrap_or_default()
    }

    pub(crate) fn enter<F: Future>(self, future: F) -> impl Future<Output = F::Output> {
        CURRENT.scope(self, future)
    }
}

impl Lease {
    /// The lease this task runs under, if any.
    #[must_use]
    pub fn current() -> Option<Self> {
        CURRENT.try_with(|context| context.lease.clone()).ok().flatten()
    }
}

impl Outcome {
    /// Runs `future` with a slot of its own and returns what the outermost run in it came to. Of several side by
    /// side the least settled stands (retry over dead letter over ack); `None` if there was no run at all. A run in
    /// a task spawned inside is not seen, unless it is spawned by
    /// [`Executor::detach`](crate::Executor::detach). A capture inside a capture is seen by both.
    ///
    /// # Cancellation
    /// Dropping it drops `future`.
    pub async fn capture<F: Future>(future: F) -> (F::Output, Option<Self>) {
        let (output, captured) = Self::capture_run(future).await;
        (output, captured.map(|captured| captured.outcome))
    }

    /// As [`capture`](Self::capture), with the key and the attempt of the run whose outcome stands: for whoever settles
    /// deliveries of handlers that claim their keys themselves.
    ///
    /// ```
    /// use idempotent_core::{Auto, Call, Executor, Handler, Identity, Json, MemoryStore, Outcome, Rejection, Scene};
    ///
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
    /// let executor = Executor::new(MemoryStore::new());
    /// let call = Call::new(Identity::new(Scene::Mq, "orders", "o-17"));
    /// let handler = Handler::<Auto, Json, _, _>::new(|| async { Err::<(), Rejection>(Rejection::LeaseLost) });
    /// let (_, captured) = Outcome::capture_run(executor.run(call, handler)).await;
    /// let captured = captured.unwrap();
    /// assert!(matches!(captured.outcome, Outcome::Released { .. }));
    /// assert_eq!((captured.attempt, captured.key.is_some()), (Some(1), true));
    /// // Where nothing ran there is nothing to tell.
    /// assert!(Outcome::capture_run(async {}).await.1.is_none());
    /// # });
    /// ```
    ///
    /// # Cancellation
    /// Dropping it drops `future`.
    pub async fn capture_run<F: Future>(future: F) -> (F::Output, Option<Captured>) {
        let slot = OutcomeSlot::default();
        let outer = TaskContext::current();
        let context = TaskContext { slot: Some(slot.clone()), ..outer.clone() };
        let output = context.enter(future).await;
        let captured = slot.take();
        // To look at an outcome does not hide it from whoever settles the delivery.
        if let (Some(outer), Some(captured)) = (&outer.slot, &captured) {
            outer.tell(captured.clone());
        }
        (output, captured)
    }
}
