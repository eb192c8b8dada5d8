//! The store is down, and the policy says to run all the same.
use std::future::Future;
use std::panic::resume_unwind;

use super::judge::{Judged, Worth, judge};
use super::report::Report;
use super::{Executor, Handler};
use crate::context::Frame;
use crate::policy::Terms;
use crate::{Codec, Event, Outcome, Replies};

impl Executor {
    /// Runs the handler without a lease; duplicates run too. What it answers settles the delivery as it would under a
    /// lease, but that nothing is recorded.
    pub(super) async fn unprotected<P, C, R, F, Fut>(
        &self,
        terms: &Terms,
        frame: Frame,
        mut report: Report<'_>,
        handler: Handler<P, C, R, F>,
    ) -> P::Output<R>
    where
        P: Replies<R>,
        C: Codec<P::Value>,
        F: FnOnce() -> Fut,
        Fut: Future<Output = R>,
    {
        let (run, handler) = handler.take();
        if self.is_draining() && !frame.is_inside() {
            return handler.come_back_later(&mut report, self.draining());
        }
        report.started();
        report.event(&Event::RunsUnprotected);
        // No lease of its own, and none of another key to be taken for it; a run around this one is still one.
        let inner = Frame { lease: None, slot: None, ..frame.around() };
        let running = inner.enter(Box::pin(async { P::split(run().await).await }));
        let reply = tokio::select! {
            biased;
            reply = running => reply,
            () = self.closed() => {
                self.0.gate.abandon();
                report.end(Outcome::Abandoned);
                return handler.reject(self.draining());
            }
        };
        let (output, outcome) = match judge(reply, &handler, terms, &report) {
            Ok(Judged::Done(value, _)) => (P::value(value), Outcome::Unprotected),
            Ok(Judged::NotDone(value)) => (P::value(value), self.again(terms)),
            Ok(Judged::Failed(failure, Worth::AnotherRun, _)) => (P::failure(failure), self.again(terms)),
            Ok(Judged::Failed(failure, Worth::NoMore | Worth::Parked, _)) => (P::failure(failure), Outcome::Failed),
            Err(panic) => {
                report.end(self.again(terms));
                resume_unwind(panic)
            }
        };
        report.end(outcome);
        output
    }

    fn again(&self, terms: &Terms) -> Outcome {
        Outcome::Released { retry_after: self.retry_in(terms, 1) }
    }
}
