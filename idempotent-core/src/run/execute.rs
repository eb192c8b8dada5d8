//! The handler's run under the lease.
use std::future::{Future, poll_fn, ready};
use std::panic::{AssertUnwindSafe, resume_unwind};
use std::pin::pin;
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::Either;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::attempt::{AbortReason, Attempt};
use super::classify::{Classified, classify};
use super::report::Report;
use crate::clock::unless;
use crate::context::TaskContext;
use crate::engine::draining_rejection;
use crate::executor::Handler;
use crate::{Codec, Rejection, ReplyStrategy};

/// The permit of a handler, if handlers are limited.
type Turn = Option<OwnedSemaphorePermit>;

impl Attempt<'_> {
    /// Runs the handler under the lease and settles the run by its answer.
    pub(crate) fn run_handler<P, C, R, F, Fut>(
        mut self,
        mut context: TaskContext,
        report: &mut Report<'_>,
        handler: Handler<P, C, R, F>,
    ) -> impl Future<Output = P::Output<R>>
    where
        P: ReplyStrategy<R>,
        C: Codec<P::Value>,
        F: FnOnce() -> Fut,
        Fut: Future<Output = R>,
    {
        async move {
            let (run, handler) = handler.take();
            let mut turn = match self.turn(context.delivery.turns.take()).await {
                Ok(turn) => turn,
                Err(rejection) => return report.reject(&handler, rejection),
            };
            self.start(report);
            let nested_slot = self.lease.nested_slot();
            let inner_context = TaskContext { lease: Some(self.lease.clone()), slot: Some(nested_slot), ..context };
            // Boxed so that only calls that run the handler hold its state. The answer is split under the lease too, since
            // it may be a stream.
            let running = inner_context.enter(Box::pin(async { P::split(run().await).await }));
            let ended = match unless(AssertUnwindSafe(running).catch_unwind(), || self.abort_reason()).await {
                Ok(ended) => ended,
                Err(why) => return handler.reject(self.abandon(why, report)),
            };
            // No `await` inside the match: otherwise the future would reserve space for the answer while the handler runs.
            let mut is_done = false;
            // Not moved after its creation, because the future would have room for both places.
            let mut settlement = pin!(match ended.map(|reply| classify(reply, &handler, self.policy(), report)) {
                Ok(classified) => {
                    is_done = matches!(classified, Classified::Done(..));
                    let nested = self.lease.nested_slot().take_outcome();
                    Either::Left(self.settle(report, classified, None, nested, &handler))
                }
                Err(panic) => Either::Right(Box::pin(async {
                    self.settle_panic(report).await;
                    resume_unwind(panic)
                })),
            });
            let settled = poll_fn(|context| {
                let settled = settlement.as_mut().poll(context);
                // The completion is sent before the next handler starts, because that one may block the thread. The turn includes the
                // compensations of a run that failed.
                if is_done {
                    turn = None;
                }
                settled
            });
            settled.await.answer()
        }
    }

    /// Waits for the turn of the handler, if there are turns.
    ///
    /// # Errors
    /// Returns the rejection if the handler must not start any more. The key is then released.
    fn turn(&mut self, turns: Option<Arc<Semaphore>>) -> impl Future<Output = Result<Turn, Rejection>> {
        // Only pure steps run between the reading of the clock and this check.
        let late = self.late_rejection(self.granted_at);
        let at_once = match (&late, &turns) {
            (Some(_), _) => None,
            (None, None) => Some(None),
            (None, Some(turns)) => turns.clone().try_acquire_owned().ok().map(Some),
        };
        match at_once {
            Some(turn) => Either::Left(ready(Ok(turn))),
            // Boxed, because few runs wait.
            None => Either::Right(Box::pin(self.wait_for_turn(late, turns))),
        }
    }

    async fn wait_for_turn(
        &mut self,
        mut late: Option<Rejection>,
        turns: Option<Arc<Semaphore>>,
    ) -> Result<Turn, Rejection> {
        if let (None, Some(turns)) = (&late, turns) {
            self.lease.run_from(None);
            let lost = || async {
                tokio::select! {
                    () = self.engine.renewer.watch_lease(&self.lease) => {}
                    () = self.engine.grace_ended() => {}
                }
            };
            let turn = unless(turns.acquire_owned(), lost).await;
            let now = self.engine.clock.now();
            self.lease.run_from(Some(now));
            late = self.late_rejection(now);
            if let (None, Ok(turn)) = (&late, turn) {
                // A consumer does not close its semaphore.
                return Ok(turn.ok());
            }
        }
        self.refund().await;
        Err(late.unwrap_or_else(draining_rejection))
    }

    /// Waits until the handler must be dropped, and returns the reason.
    async fn abort_reason(&self) -> AbortReason {
        tokio::select! {
            biased;
            () = self.lease_lost() => AbortReason::LeaseLost,
            () = self.engine.grace_ended() => AbortReason::GraceEnded,
        }
    }
}
