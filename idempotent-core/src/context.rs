//! The context of a task: the executor in scope, the current lease, and the slot for the outcome.
use std::future::Future;
use std::sync::Arc;

use futures_util::FutureExt;

use crate::executor::DeliveryContext;
use crate::outcome::{OutcomeSlot, SummarySlot};
use crate::{Executor, Key, Lease, Outcome, PreferredLanguages, RunSummary};

tokio::task_local! {
    static CURRENT: TaskContext;
}

#[derive(Clone, Debug, Default)]
pub(crate) struct TaskContext {
    pub(crate) executor: Option<Executor>,
    pub(crate) lease: Option<Lease>,
    pub(crate) slot: Option<OutcomeSlot>,
    /// The leases of outer runs other than `lease`: of a batch handler's items, or around an unprotected run.
    pub(crate) outer_leases: Option<Arc<[Lease]>>,
    /// The current delivery, as its consumer describes it.
    pub(crate) delivery: DeliveryContext,
    /// The languages that the caller prefers.
    pub(crate) languages: PreferredLanguages,
}

impl TaskContext {
    /// Returns true inside a run.
    pub(crate) fn is_nested(&self) -> bool {
        self.lease.is_some() || self.outer_leases.is_some()
    }

    /// Moves the current lease to the outer leases.
    pub(crate) fn with_outer_leases(self) -> Self {
        let leases: Vec<_> =
            self.outer_leases.iter().flat_map(|leases| &**leases).chain(&self.lease).cloned().collect();
        let outer_leases = (!leases.is_empty()).then(|| leases.into());
        Self { outer_leases, ..self }
    }

    /// Returns the scope of the outer run that holds this key.
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

/// Runs the handler of a consumer's delivery, and returns the summary of the run inside it. No other code captures the outcome of a
/// consumer's task.
#[doc(hidden)]
pub fn capture_delivery<F: Future>(
    executor: Executor,
    delivery: DeliveryContext,
    slot: Arc<dyn SummarySlot>,
    handler: F,
) -> impl Future<Output = (F::Output, Option<RunSummary>)> {
    let inner = OutcomeSlot::OfDelivery(Arc::downgrade(&slot));
    let inner = TaskContext { executor: Some(executor), delivery, slot: Some(inner), ..TaskContext::current() };
    inner.enter(handler).map(move |output| (output, OutcomeSlot::Shared(slot).take()))
}

impl Lease {
    /// Returns the lease of the current task, if it runs under one.
    #[must_use]
    pub fn current() -> Option<Self> {
        CURRENT.try_with(|context| context.lease.clone()).ok().flatten()
    }
}

impl PreferredLanguages {
    /// Runs `future` with these preferences. Adapters read them by [`current`](Self::current) to answer in the caller's
    /// language.
    ///
    /// # Cancellation
    /// Dropping the returned future drops `future`.
    pub async fn scope<F: Future>(self, future: F) -> F::Output {
        TaskContext { languages: self, ..TaskContext::current() }.enter(future).await
    }

    /// Returns the preferences of the current task. A task spawned by [`Executor::detach`](crate::Executor::detach)
    /// inherits them.
    #[must_use]
    pub fn current() -> Self {
        TaskContext::current().languages
    }
}

impl Outcome {
    /// Runs `future` and returns the outcome of the outermost run in it, or `None` if there was no run.
    ///
    /// Of several concurrent runs, the least settled outcome is returned (retry before dead-letter before acknowledge).
    /// A run in a task spawned inside is not seen, unless the task is spawned by
    /// [`Executor::detach`](crate::Executor::detach). Nested captures both see the outcome.
    ///
    /// # Cancellation
    /// Dropping the returned future drops `future`.
    pub async fn capture<F: Future>(future: F) -> (F::Output, Option<Self>) {
        let (output, captured) = Self::capture_run(future).await;
        (output, captured.map(|captured| captured.outcome))
    }

    /// Runs a future like [`capture`](Self::capture), and also returns the key and attempt of the run. Use this to
    /// settle deliveries of handlers that claim their keys themselves.
    ///
    /// ```
    /// use idempotent_core::{DefaultReply, Call, Executor, Handler, Identity, Json, MemoryStore, Outcome, Rejection, Scene};
    ///
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
    /// let executor = Executor::new(MemoryStore::new());
    /// let call = Call::new(Identity::new(Scene::Mq, "orders", "o-17"));
    /// let handler = Handler::<DefaultReply, Json, _, _>::new(|| async { Err::<(), Rejection>(Rejection::LeaseLost) });
    /// let (_, captured) = Outcome::capture_run(executor.run(call, handler)).await;
    /// let captured = captured.unwrap();
    /// assert!(matches!(captured.outcome, Outcome::Released { .. }));
    /// assert_eq!((captured.attempt, captured.key.is_some()), (Some(1), true));
    /// // Without a run there is no outcome.
    /// assert!(Outcome::capture_run(async {}).await.1.is_none());
    /// # });
    /// ```
    ///
    /// # Cancellation
    /// Dropping the returned future drops `future`.
    pub async fn capture_run<F: Future>(future: F) -> (F::Output, Option<RunSummary>) {
        let slot = OutcomeSlot::default();
        let mut context = TaskContext::current();
        let outer = context.slot.replace(slot.clone());
        let output = context.enter(future).await;
        let captured = slot.take();
        // An outer capture sees the outcome too, so that the delivery can be settled by it.
        if let (Some(outer), Some(captured)) = (&outer, &captured) {
            outer.tell(captured.clone());
        }
        (output, captured)
    }
}
