//! The completions of a batch, in one trip.
use crate::engine::{DrainPhase, no_answer};
use crate::run::attempt::Attempt;
use crate::run::classify::Classified;
use crate::run::report::Report;
use crate::run::settle::StoreReply;

/// An item that was handled, and what its answer came to.
type Handled<'e, V, F> = (usize, Attempt<'e>, Report<'e>, Classified<V, F>);

/// Completes those that are done with one call of the store, where it can: what it said to each. None: it was not asked.
pub(super) async fn complete<V, F>(handled: &mut [Handled<'_, V, F>]) -> Vec<Option<StoreReply>> {
    let mut told: Vec<_> = handled.iter().map(|_| None).collect();
    let done = (0..handled.len()).filter(|at| matches!(handled[*at].3, Classified::Done(..)));
    let done: Vec<usize> = done.collect();
    let [first, _, ..] = done[..] else { return told };
    let engine = handled[first].1.engine;
    let Some(batch) = engine.store.abilities().batch else { return told };
    let now = engine.clock.now();
    let (mut completions, mut until) = (Vec::with_capacity(done.len()), None);
    for (_, attempt, _, judged) in handled {
        if let Classified::Done(_, kept) = judged {
            let completion = attempt.completion(kept.clone());
            completions.push((attempt.lease.held().clone(), completion));
            let own = attempt.gives_up_at(now);
            until = Some(until.map_or(own, |others| own.min(others)));
        }
    }
    let until = until.unwrap_or(now);
    let answers = engine.before(until, batch.complete_all(&completions)).await;
    let is_last = answers.is_none() && engine.drain.has_reached(DrainPhase::Closed) && engine.clock.now() < until;
    let mut answers = answers.into_iter().flatten();
    for at in done {
        let answer = answers.next().unwrap_or_else(|| Err(no_answer("in time")));
        told[at] = Some(StoreReply { answer, is_last });
    }
    told
}
