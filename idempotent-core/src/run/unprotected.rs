//! Runs without a lease, for policies that run the handler although the store is down.
use std::future::Future;

use super::classify::{Classified, RetryDecision, classify};
use super::report::Report;
use crate::clock::unless;
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
    mut context: TaskContext,
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
    let _turn = match context.delivery.turns.take() {
        Some(turns) => {
            let turn = unless(turns.acquire_owned(), || engine.grace_ended()).await;
            if engine.is_draining() {
                return report.reject(&handler, draining_rejection());
            }
            turn.ok()
        }
        None => None,
    };
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
    // The report ends first: a strategy may panic.
    match classify(reply, &handler, policy, &mut report) {
        Classified::Done(value, _) => {
            report.end(Outcome::Unprotected);
            P::value(value)
        }
        Classified::NotDone(value) => {
            report.end(released(engine, policy));
            P::value(value)
        }
        Classified::Failed(failure, decision, _) => {
            report.end(match decision {
                RetryDecision::Retry => released(engine, policy),
                RetryDecision::GiveUp | RetryDecision::Park => Outcome::Failed,
            });
            P::failure(failure)
        }
    }
}

fn released(engine: &Engine, policy: &ResolvedPolicy) -> Outcome {
    Outcome::Released { retry_after: engine.retry_delay(policy, 1) }
}
