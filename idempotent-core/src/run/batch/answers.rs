//! The answers of a batch.
use std::any::Any;
use std::iter::repeat_with;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::time::Duration;

use super::completions::complete;
use super::{BatchOutput, ClaimedItem, all};
use crate::executor::Handler;
use crate::run::attempt::AbortReason;
use crate::run::classify::{RetryDecision, classify};
use crate::run::prepared::Prepared;
use crate::run::report::Report;
use crate::{Codec, Disposition, HandlerEnd, HandlerOutcome, Key, Outcome, Rejection, ReplyStrategy, codec};

/// The end of the handler of a batch.
pub(super) enum BatchHandlerEnd<V, F> {
    Replies(Vec<HandlerOutcome<V, F>>),
    Aborted(AbortReason),
    Panicked(Box<dyn Any + Send>),
}

/// The answers so far, by index.
pub(super) struct Answers<'a, P: ReplyStrategy<R>, C, R> {
    rules: &'a Handler<P, C, R, ()>,
    by_index: Vec<Option<Answer<P::Output<R>>>>,
}

struct Answer<O> {
    output: BatchOutput<O>,
    /// The encoded result of an item that is done, for duplicates in the batch.
    done: Option<Option<Arc<[u8]>>>,
}

impl<'a, P, C, R> Answers<'a, P, C, R>
where
    P: ReplyStrategy<R>,
    C: Codec<P::Value>,
{
    pub(super) fn new(rules: &'a Handler<P, C, R, ()>, items: usize) -> Self {
        Self { rules, by_index: repeat_with(|| None).take(items).collect() }
    }

    pub(super) fn in_order(self) -> Vec<BatchOutput<P::Output<R>>> {
        self.by_index.into_iter().flatten().map(|answer| answer.output).collect()
    }

    fn add(
        &mut self,
        index: usize,
        output: P::Output<R>,
        outcome: Outcome,
        done: Option<Option<Arc<[u8]>>>,
        (key, attempt): (Option<Key>, Option<u32>),
    ) {
        self.by_index[index] = Some(Answer { output: BatchOutput { output, outcome, key, attempt }, done });
    }

    fn answer(&self, index: usize) -> Option<&Answer<P::Output<R>>> {
        self.by_index.get(index)?.as_ref()
    }

    /// Settles each handled item. `nested` is the outcome of the runs inside the handler. It cannot be attributed to
    /// one item, so a deferral defers every failed item.
    pub(super) async fn settle(
        &mut self,
        ended: BatchHandlerEnd<P::Value, P::Failure>,
        claimed: Vec<ClaimedItem<'_>>,
        nested: Option<Outcome>,
    ) {
        let given = claimed.len();
        match ended {
            BatchHandlerEnd::Replies(replies) if replies.len() == given => {
                self.settle_each(replies, claimed, nested).await
            }
            BatchHandlerEnd::Replies(replies) => {
                let answered = replies.len();
                let error = "the batch handler did not answer for each item";
                let released = claimed.into_iter().map(|(index, mut attempt, mut report)| async move {
                    report.handler_ended(HandlerEnd::Error);
                    let outcome = attempt.release_failed(&report, RetryDecision::Retry, error.into(), None).await;
                    attempt.end(&mut report, outcome.clone());
                    (index, outcome, report.key_and_attempt())
                });
                for (index, outcome, run) in all(released).await.into_iter().flatten() {
                    let output = self.rules.reject(Rejection::BatchAnswers { given, answered });
                    self.add(index, output, outcome, None, run);
                }
            }
            BatchHandlerEnd::Aborted(why) => {
                for (index, mut attempt, mut report) in claimed {
                    let outcome = match why {
                        AbortReason::LeaseLost => Outcome::LeaseLost,
                        AbortReason::GraceEnded => Outcome::Abandoned,
                    };
                    let output = self.rules.reject(attempt.abandon(why, &mut report));
                    self.add(index, output, outcome, None, report.key_and_attempt());
                }
            }
            BatchHandlerEnd::Panicked(panic) => {
                all(claimed
                    .into_iter()
                    .map(|(_, mut attempt, mut report)| async move { attempt.settle_panic(&mut report).await }))
                .await;
                resume_unwind(panic)
            }
        }
    }

    /// Classifies all answers before it settles the first. A panic of a reply strategy resumes after all items are settled.
    async fn settle_each(
        &mut self,
        replies: Vec<HandlerOutcome<P::Value, P::Failure>>,
        claimed: Vec<ClaimedItem<'_>>,
        nested: Option<Outcome>,
    ) {
        let rules = self.rules;
        let classified = replies.into_iter().zip(claimed).map(|(reply, (index, attempt, mut report))| {
            let answer = classify(reply, rules, attempt.policy(), &mut report);
            (index, attempt, report, answer)
        });
        let mut classified: Vec<_> = classified.collect();
        let by_index = complete(&mut classified).await;
        let settled =
            classified.into_iter().zip(by_index).map(|((index, mut attempt, mut report, answer), by_index)| {
                let nested = nested.clone();
                async move {
                    let run = attempt.settle(&mut report, answer, by_index, nested, rules).await;
                    (index, run, report.key_and_attempt())
                }
            });
        for (index, mut settled, run) in all(settled).await.into_iter().flatten() {
            let (outcome, stored_value) = (settled.outcome.clone(), settled.stored_value.take());
            let done = (outcome == Outcome::Ran).then_some(stored_value);
            self.add(index, settled.answer(), outcome, done, run);
        }
    }

    pub(super) fn reject(&mut self, index: usize, rejection: Rejection, mut report: Report<'_>) {
        let outcome = Outcome::of(&rejection);
        report.end(outcome.clone());
        let output = self.rules.reject(rejection);
        self.add(index, output, outcome, None, report.key_and_attempt());
    }

    pub(super) fn replay(&mut self, index: usize, value: Option<Arc<[u8]>>, mut report: Report<'_>) {
        let decoded = codec::decode::<C, _>(value.as_deref())
            .map_err(|cause| Rejection::ConsumedWithoutResult { cause: Some(cause) });
        let outcome = decoded.as_ref().map_or_else(Outcome::of, |_| Outcome::Replayed);
        report.end(outcome.clone());
        let output = decoded.map_or_else(|rejection| self.rules.reject(rejection), P::replayed);
        self.add(index, output, outcome, Some(value), report.key_and_attempt());
    }

    /// Returns true if the item was answered as a duplicate. Only the store knows when its key was consumed.
    pub(super) fn is_duplicate(&self, index: usize) -> bool {
        self.answer(index).is_some_and(|answer| answer.output.outcome == Outcome::Duplicate)
    }

    /// Answers a duplicate of an earlier item.
    pub(super) fn answer_duplicate(&mut self, index: usize, first: usize, prepared: &Prepared, report: Report<'_>) {
        let answered = self.answer(first);
        if let Some(value) = answered.and_then(|answer| answer.done.clone()) {
            if prepared.refuses_duplicates() {
                // The first item is done just now, so all of the window is left.
                return self.reject(index, prepared.duplicate_rejection(prepared.policy.window), report);
            }
            return self.replay(index, value, report);
        }
        // The first item is not done: both will be redelivered, and the store decides between them.
        let retry_after = match answered.map(|answer| answer.output.outcome.disposition()) {
            Some(Disposition::Retry { after }) => after,
            _ => Duration::from_secs(1),
        };
        self.reject(index, prepared.in_flight_rejection(retry_after), report);
    }
}
