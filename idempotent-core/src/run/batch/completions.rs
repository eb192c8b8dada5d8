//! The completions of a batch in one store call.
use std::panic::AssertUnwindSafe;

use futures_util::FutureExt;

use crate::engine::{DrainPhase, no_answer};
use crate::run::attempt::Attempt;
use crate::run::classify::Classified;
use crate::run::report::Report;
use crate::run::settle::StoreReply;

/// A handled item with its classified answer.
type Handled<'e, V, F> = (usize, Attempt<'e>, Report<'e>, Classified<V, F>);

/// Completes the items that are done in one store call, if the store can. Returns the reply for each item, or `None`
/// for items that were not sent.
pub(super) async fn complete<V, F>(handled: &mut [Handled<'_, V, F>]) -> Vec<Option<Box<StoreReply>>> {
    let mut replies: Vec<_> = handled.iter().map(|_| None).collect();
    let done_indices = (0..handled.len()).filter(|index| matches!(handled[*index].3, Classified::Done(..)));
    let done_indices: Vec<usize> = done_indices.collect();
    let [first, _, ..] = done_indices[..] else { return replies };
    let engine = handled[first].1.engine;
    let Some(batch) = engine.store.capabilities().batch else { return replies };
    let now = engine.clock.now();
    let (mut completions, mut until) = (Vec::with_capacity(done_indices.len()), None);
    for (_, attempt, _, classified) in handled.iter_mut() {
        if let Classified::Done(_, stored_value) = classified {
            attempt.begin_settlement();
            let completion = attempt.completion(stored_value.clone());
            completions.push((attempt.lease.settling_handle().clone(), completion));
            let own = attempt.first_try_deadline(now);
            until = Some(until.map_or(own, |others| own.min(others)));
        }
    }
    let until = until.unwrap_or(now);
    // The keys may be consumed after a panic of the store: each completion is repeated.
    let completed = AssertUnwindSafe(batch.complete_all(&completions)).catch_unwind();
    let answers = engine.before(|| until, completed).await.and_then(Result::ok);
    let is_last = answers.is_none() && engine.drain.has_reached(DrainPhase::GraceEnded) && engine.clock.now() < until;
    let mut answers = answers.into_iter().flatten();
    for index in done_indices {
        let answer = answers.next().unwrap_or_else(|| Err(no_answer("in time")));
        replies[index] = Some(Box::new(StoreReply { answer, is_last }));
    }
    // The request is one, so it is reported once.
    if let Some(reply) = &replies[first] {
        handled[first].2.store_answered("complete", now, &reply.answer);
    }
    replies
}
