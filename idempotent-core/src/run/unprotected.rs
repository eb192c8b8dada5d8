//! The store is down, and the policy says to run all the same.
use std::panic::resume_unwind;

use super::classify::{Classified, RetryDecision, classify};
use super::report::Report;
use crate::context::TaskContext;
use crate::engine::{Engine, draining};
use crate::executor::{Handler, HandlerFn};
use crate::policy::ResolvedPolicy;
use crate::{Codec, Event, Outcome, Replies};

/// Runs the handler without a lease; duplicates run too. What it answers settles the delivery as it would under a
/// lease, but that nothing is recorded.
pub(crate) async fn unprotected<P, C, R, F>(
    engine: &Engine,
    terms: &ResolvedPolicy,
    frame: TaskContext,
    mut report: Report<'_>,
    handler: Handler<P, C, R, F>,
) -> P::Output<R>
where
    P: Replies<R>,
    C: Codec<P::Value>,
    F: HandlerFn<R>,
{
    let (run, handler) = handler.take();
    if engine.is_draining() && !frame.is_inside() {
        return report.reject(&handler, draining());
    }
    report.started();
    report.event(&Event::RunsUnprotected);
    // No lease of its own, and none of another key to be taken for it; a run around this one is still one.
    let inner = TaskContext { lease: None, slot: None, ..frame.around() };
    let running = inner.enter(Box::pin(async { P::split(run().await).await }));
    let reply = tokio::select! {
        biased;
        reply = running => reply,
        () = engine.closed() => {
            engine.drain.abandon();
            report.end(Outcome::Abandoned);
            return handler.reject(draining());
        }
    };
    let (output, outcome) = match classify(reply, &handler, terms, &report) {
        Ok(Classified::Done(value, _)) => (P::value(value), Outcome::Unprotected),
        Ok(Classified::NotDone(value)) => (P::value(value), again(engine, terms)),
        Ok(Classified::Failed(failure, RetryDecision::AnotherRun, _)) => (P::failure(failure), again(engine, terms)),
        Ok(Classified::Failed(failure, RetryDecision::NoMore | RetryDecision::Parked, _)) => {
            (P::failure(failure), Outcome::Failed)
        }
        Err(panic) => {
            report.end(again(engine, terms));
            resume_unwind(panic)
        }
    };
    report.end(outcome);
    output
}

fn again(engine: &Engine, terms: &ResolvedPolicy) -> Outcome {
    Outcome::Released { retry_after: engine.retry_in(terms, 1) }
}
