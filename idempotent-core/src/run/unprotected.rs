//! Runs without a lease, for policies that run the handler although the store is down.
use std::future::Future;
use std::panic::resume_unwind;

use super::classify::{Classified, RetryDecision, classify};
use super::report::Report;
use crate::context::TaskContext;
use crate::engine::{Engine, draining_rejection};
use crate::executor::Handler;
use crate::policy::ResolvedPolicy;
use crate::{Codec, Event, Outcome, ReplyStrategy};

/// Runs the handler without a lease, so duplicates run too. The answer settles the delivery as under a lease, but
/// nothing is recorded.
pub(crate) async fn run_unprotected<P, C, R, F, Fut>(
    engine: &Engine,
    policy: &ResolvedPolicy,
    context: TaskContext,
    mut report: Report<'_>,
    handler: Handler<P, C, R, F>,
) -> P::Output<R>
where
    P: ReplyStrategy<R>,
    C: Codec<P::Value>,
    F: FnOnce() -> Fut,
    Fut: Future<Output = R>,
{
    let (run, handler) = handler.take();
    report.started();
    report.event(&Event::RunsUnprotected);
    // The context has no lease of its own, and keeps the leases of the runs around it.
    let nested = TaskContext { lease: None, slot: None, ..context.with_outer_leases() };
    let running = nested.enter(Box::pin(async { P::split(run().await).await }));
    let reply = tokio::select! {
        biased;
        reply = running => reply,
        () = engine.grace_ended() => {
            engine.drain.count_abandoned();
            report.end(Outcome::Abandoned);
            return handler.reject(draining_rejection());
        }
    };
    let (output, outcome) = match classify(reply, &handler, policy, &mut report) {
        Ok(Classified::Done(value, _)) => (P::value(value), Outcome::Unprotected),
        Ok(Classified::NotDone(value)) => (P::value(value), released(engine, policy)),
        Ok(Classified::Failed(failure, RetryDecision::Retry, _)) => (P::failure(failure), released(engine, policy)),
        Ok(Classified::Failed(failure, RetryDecision::GiveUp | RetryDecision::Park, _)) => {
            (P::failure(failure), Outcome::Failed)
        }
        Err(panic) => {
            report.end(released(engine, policy));
            resume_unwind(panic)
        }
    };
    report.end(outcome);
    output
}

fn released(engine: &Engine, policy: &ResolvedPolicy) -> Outcome {
    Outcome::Released { retry_after: engine.retry_delay(policy, 1) }
}
