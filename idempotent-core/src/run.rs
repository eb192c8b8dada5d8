//! One delivery from its call to its answer: claim the key, run the handler, and settle the run, or answer a duplicate.
//!
//! The functions on the way of each run return `async move` blocks: the future of an `async fn` contains each argument
//! twice, and the futures of a run are allocated.
#![allow(clippy::manual_async_fn)]

mod attempt;
mod batch;
mod claim;
mod classify;
mod execute;
mod not_acquired;
mod prepare;
mod prepared;
mod release;
mod release_on_drop;
mod report;
mod settle;
mod settling_step;
mod unprotected;

use std::future::{Future, poll_fn, ready};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::thread;

use futures_util::FutureExt;
use futures_util::future::Either;
use tracing::{Instrument, Span};

pub(crate) use self::attempt::Attempt;
pub use self::batch::BatchOutput;
use self::claim::claim;
use self::not_acquired::duplicate_rejection;
pub(crate) use self::not_acquired::{NotAcquired, not_granted, store_failure};
use self::prepare::prepare;
pub(crate) use self::prepared::{Prepared, ResolvedOrdering};
pub(crate) use self::release::release;
pub(crate) use self::release_on_drop::ReleaseOnDrop;
pub(crate) use self::report::Report;
use self::unprotected::run_unprotected;
use crate::context::TaskContext;
use crate::engine::Engine;
use crate::executor::{BatchItem, Call, DeliveryContext, Executor, Handler, Withdrawal};
use crate::outcome::{OutcomeSlot, SummarySlot};
use crate::{Codec, Outcome, Rejection, ReplyStrategy, RunSummary, codec};

/// A run that has passed all checks before the claim, with its span; or the answer to the call.
///
/// The future is boxed so that the caller's future stays small, however deep its handlers nest.
type CheckedRun<F, O> = Result<(Pin<Box<F>>, Option<Span>), O>;

impl Executor {
    /// Runs `handler`, unless the call was consumed before or is in flight. The returned future stores `call` until its
    /// end. Pass a `Box<Call>` to make the future smaller.
    ///
    /// # Cancellation
    /// Dropping the returned future drops the handler and stops the renewal of the lease. If the handler had not
    /// started, the key is released. Otherwise the effect is unknown, and the key is held until the lease expires,
    /// unless the policy sets `release_on_cancel`.
    ///
    /// # Panics
    /// A panic of the handler releases the key and resumes.
    pub async fn run<P, C, R, F, Fut>(&self, call: impl Into<Call>, handler: Handler<P, C, R, F>) -> P::Output<R>
    where
        P: ReplyStrategy<R>,
        C: Codec<P::Value>,
        F: FnOnce() -> Fut,
        Fut: Future<Output = R>,
    {
        finish(begin(&self.0, TaskContext::current(), call.into(), handler)).await
    }

    /// Runs `handler` once with all items whose keys are free, and returns one answer per item, in order.
    ///
    /// Duplicates inside the batch are collapsed: only the first is handled. The others get its result, or are rejected
    /// as duplicates if the policy refuses them. If no key is free, the handler is not called. Policies that wait for a run
    /// in flight do not wait here, and no item runs unprotected.
    ///
    /// Settle each delivery by its own [`BatchOutput::outcome`]. If the handler returns a different number of answers than
    /// it was given items, all of the items are released. The handler is dropped once every item has lost its lease.
    /// While at least one lease is valid, the handler continues, and the answers for lost items are ignored.
    ///
    /// # Cancellation
    /// Like [`run`](Self::run), for each item.
    ///
    /// # Panics
    /// A panic of the handler releases the keys of its items and resumes.
    pub async fn run_batch<P, C, R, T, F, Fut>(
        &self,
        items: Vec<(Call, T)>,
        handler: Handler<P, C, R, F>,
    ) -> Vec<BatchOutput<P::Output<R>>>
    where
        P: ReplyStrategy<R>,
        C: Codec<P::Value>,
        F: FnOnce(Vec<BatchItem<T>>) -> Fut,
        Fut: Future<Output = Vec<R>>,
    {
        batch::run(&self.0, items, handler).await
    }
}

/// Runs an annotated function: the entry point of the attribute's code.
#[doc(hidden)]
pub async fn run<P, C, R, F, Fut>(with: Option<Executor>, call: Call, handler: Handler<P, C, R, F>) -> P::Output<R>
where
    P: ReplyStrategy<R>,
    C: Codec<P::Value>,
    F: FnOnce() -> Fut,
    Fut: Future<Output = R>,
{
    match with {
        Some(executor) => finish(begin(&executor.0, TaskContext::current(), call, handler)).await,
        None => handler.reject(no_executor(&call)),
    }
}

/// Runs the call of a consumer's delivery. Returns the summary of the run with the answer, or with the panic of the handler, whose key
/// is released.
///
/// Only the handler runs in the scope of the delivery. Claim, settlement and compensations do not need it, because a nested run
/// ignores the delivery, and no other code captures the outcome of a consumer's task.
#[doc(hidden)]
pub fn run_delivery<P, C, R, F, Fut>(
    executor: Executor,
    delivery: DeliveryContext,
    slot: Arc<dyn SummarySlot>,
    call: Call,
    handler: Handler<P, C, R, F>,
) -> impl Future<Output = (thread::Result<P::Output<R>>, Option<RunSummary>)>
where
    P: ReplyStrategy<R>,
    C: Codec<P::Value>,
    F: FnOnce() -> Fut,
    Fut: Future<Output = R>,
{
    async move {
        let inner = OutcomeSlot::OfDelivery(Arc::downgrade(&slot));
        let slot = OutcomeSlot::Shared(slot);
        let context = TaskContext { slot: Some(inner), delivery, ..TaskContext::current() };
        let begun = catch_unwind(AssertUnwindSafe(|| begin(&executor.0, context, call, handler)));
        let run = match begun {
            Ok(checked) => finish(checked),
            Err(panic) => return (Err(panic), slot.take()),
        };
        let output = AssertUnwindSafe(run).catch_unwind().await;
        (output, slot.take())
    }
}

/// Runs an annotated function with many items: the entry point of the attribute's code for batches.
#[doc(hidden)]
pub async fn run_batch<P, C, R, T, F, Fut>(
    with: Option<Executor>,
    items: Vec<(Call, T)>,
    handler: Handler<P, C, R, F>,
) -> Vec<P::Output<R>>
where
    P: ReplyStrategy<R>,
    C: Codec<P::Value>,
    F: FnOnce(Vec<BatchItem<T>>) -> Fut,
    Fut: Future<Output = Vec<R>>,
{
    match with {
        // Boxed, so that the future of the annotated function stays small.
        Some(executor) => {
            let outputs = Box::pin(executor.run_batch(items, handler)).await;
            outputs.into_iter().map(|output| output.output).collect()
        }
        None => items.iter().map(|(call, _)| handler.reject(no_executor(call))).collect(),
    }
}

/// Reports and returns the rejection of a call without an executor.
fn no_executor(call: &Call) -> Rejection {
    let rejection = Rejection::NoExecutor { scope: Arc::from(&*call.identity.scope) };
    report::without_executor(&call.identity, &rejection);
    rejection
}

/// Waits for a run in its span. The function is not asynchronous, so that the future does not keep the answer to a rejected call.
fn finish<F: Future>(begun: CheckedRun<F, F::Output>) -> impl Future<Output = F::Output> {
    match begun {
        Ok((run, Some(span))) => Either::Left(Either::Left(run.instrument(span))),
        Ok((run, None)) => Either::Left(Either::Right(run)),
        Err(output) => Either::Right(ready(output)),
    }
}

fn begin<'e, P, C, R, F, Fut>(
    engine: &'e Arc<Engine>,
    context: TaskContext,
    mut call: Call,
    handler: Handler<P, C, R, F>,
) -> CheckedRun<impl Future<Output = P::Output<R>> + use<'e, P, C, R, F, Fut>, P::Output<R>>
where
    P: ReplyStrategy<R>,
    C: Codec<P::Value>,
    F: FnOnce() -> Fut,
    Fut: Future<Output = R>,
{
    if let Some(needed) = P::policy() {
        call.add_needed(engine.policy(&call.identity.scene), needed);
    }
    let mut report = Report::begin(engine, &call.identity, &context);
    match prepare(engine, call, &context, &mut report) {
        Ok(prepared) => {
            let span = report.span().cloned();
            Ok((Box::pin(deliver(engine, prepared, context, report, handler)), span))
        }
        Err(rejection) => Err(report.reject(&handler, rejection)),
    }
}

/// Claims the key and runs the handler, or answers from the record.
fn deliver<'e, P, C, R, F, Fut>(
    engine: &'e Arc<Engine>,
    prepared: Arc<Prepared>,
    context: TaskContext,
    mut report: Report<'e>,
    handler: Handler<P, C, R, F>,
) -> impl Future<Output = P::Output<R>>
where
    P: ReplyStrategy<R>,
    C: Codec<P::Value>,
    F: FnOnce() -> Fut,
    Fut: Future<Output = R>,
{
    async move {
        // No `await` inside the match: otherwise the future would reserve space for the result of the claim while the handler runs.
        let withdrawal = report.withdrawal();
        let claimed = until_withdrawn(pin!(claim(engine, prepared, &context, &mut report)), withdrawal).await;
        let rest = match claimed {
            // Boxed like the settlement: three small allocations cost less than one large allocation.
            Ok(attempt) => Either::Left(Box::pin(attempt.run_handler(context, &mut report, handler))),
            Err(NotAcquired::Replay(value)) => match codec::decode::<C, _>(value.as_deref()) {
                Ok(value) => {
                    report.end(Outcome::Replayed);
                    return P::replayed(value);
                }
                Err(cause) => {
                    return report.reject(&handler, Rejection::ConsumedWithoutResult { cause: Some(cause) });
                }
            },
            Err(NotAcquired::Rejected(rejection)) => return report.reject(&handler, rejection),
            // Boxed so that a rare path does not enlarge the future of each run.
            Err(NotAcquired::Unprotected(_, policy)) => Either::Right(Either::Left(Box::pin(async move {
                run_unprotected(engine, &policy, context, report, handler).await
            }))),
            Err(NotAcquired::Duplicate(prepared)) => Either::Right(Either::Right(Box::pin(async move {
                let rejection = duplicate_rejection(engine, &prepared).await;
                report.reject(&handler, rejection)
            }))),
        };
        rest.await
    }
}

/// Returns the result of a claim. If the consumer withdraws the admission first, the claim is dropped and its call rejected: the
/// guard of the claim releases the key.
fn until_withdrawn<T>(
    mut claim: impl Future<Output = Result<T, NotAcquired>> + Unpin,
    mut withdrawal: Option<Withdrawal>,
) -> impl Future<Output = Result<T, NotAcquired>> {
    poll_fn(move |context| match (claim.poll_unpin(context), &mut withdrawal) {
        (Poll::Pending, Some(withdrawal)) => withdrawal.poll_unpin(context).map(|error| Err(error.into())),
        (claimed, _) => claimed,
    })
}
