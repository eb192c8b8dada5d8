//! The answers of a batch.
use std::any::Any;
use std::collections::{BTreeMap, HashMap};
use std::panic::resume_unwind;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;

use super::completions::complete;
use super::{BatchOutput, ClaimedItem};
use crate::executor::Handler;
use crate::run::attempt::AbortReason;
use crate::run::classify::{RetryDecision, classify};
use crate::run::prepared::Prepared;
use crate::run::report::Report;
use crate::{Codec, Disposition, HandlerEnd, HandlerOutcome, Outcome, Rejection, ReplyStrategy, codec};

/// The end of the handler of a batch.
pub(super) enum BatchHandlerEnd<V, F> {
    Replies(Vec<HandlerOutcome<V, F>>),
    Aborted(AbortReason),
    Panicked(Box<dyn Any + Send>),
}

/// The answers so far, by index.
pub(super) struct Answers<'a, P: ReplyStrategy<R>, C, R> {
    rules: &'a Handler<P, C, R, ()>,
    by_index: BTreeMap<usize, BatchOutput<P::Output<R>>>,
    /// The encoded results of the items that are done, for duplicates in the batch.
    stored_values: HashMap<usize, Option<Arc<[u8]>>>,
}

impl<'a, P, C, R> Answers<'a, P, C, R>
where
    P: ReplyStrategy<R>,
    C: Codec<P::Value>,
{
    pub(super) fn new(rules: &'a Handler<P, C, R, ()>) -> Self {
        Self { rules, by_index: BTreeMap::new(), stored_values: HashMap::new() }
    }

    pub(super) fn in_order(self) -> Vec<BatchOutput<P::Output<R>>> {
        self.by_index.into_values().collect()
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
                    (index, outcome)
                });
                for (index, outcome) in join_all(released).await {
                    let output = self.rules.reject(Rejection::BatchAnswers { given, answered });
                    self.by_index.insert(index, BatchOutput { output, outcome });
                }
            }
            BatchHandlerEnd::Aborted(why) => {
                for (index, mut attempt, mut report) in claimed {
                    let outcome = match why {
                        AbortReason::LeaseLost => Outcome::LeaseLost,
                        AbortReason::GraceEnded => Outcome::Abandoned,
                    };
                    let output = self.rules.reject(attempt.abandon(why, &mut report));
                    self.by_index.insert(index, BatchOutput { output, outcome });
                }
            }
            BatchHandlerEnd::Panicked(panic) => {
                join_all(
                    claimed
                        .into_iter()
                        .map(|(_, mut attempt, mut report)| async move { attempt.settle_panic(&mut report).await }),
                )
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
                async move { (index, attempt.settle(&mut report, answer, by_index, nested, rules).await) }
            });
        for (index, mut run) in join_all(settled).await {
            let (outcome, stored_value) = (run.outcome.clone(), run.stored_value.take());
            if outcome == Outcome::Ran {
                self.stored_values.insert(index, stored_value);
            }
            self.by_index.insert(index, BatchOutput { output: run.answer(), outcome });
        }
    }

    pub(super) fn reject(&mut self, index: usize, rejection: Rejection, mut report: Report<'_>) {
        let outcome = Outcome::of(&rejection);
        report.end(outcome.clone());
        let output = self.rules.reject(rejection);
        self.by_index.insert(index, BatchOutput { output, outcome });
    }

    pub(super) fn replay(&mut self, index: usize, value: Option<Arc<[u8]>>, mut report: Report<'_>) {
        match codec::decode::<C, _>(value.as_deref()) {
            Ok(decoded) => {
                report.end(Outcome::Replayed);
                self.by_index.insert(index, BatchOutput { output: P::replayed(decoded), outcome: Outcome::Replayed });
            }
            Err(cause) => self.reject(index, Rejection::ConsumedWithoutResult { cause: Some(cause) }, report),
        }
        self.stored_values.insert(index, value);
    }

    /// Returns true if the item was answered as a duplicate. Only the store knows when its key was consumed.
    pub(super) fn is_duplicate(&self, index: usize) -> bool {
        self.by_index.get(&index).is_some_and(|answer| answer.outcome == Outcome::Duplicate)
    }

    /// Answers a duplicate of an earlier item.
    pub(super) fn answer_duplicate(&mut self, index: usize, first: usize, prepared: &Prepared, report: Report<'_>) {
        if let Some(stored_value) = self.stored_values.get(&first) {
            if prepared.refuses_duplicates() {
                // The first item is done just now, so all of the window is left.
                return self.reject(index, prepared.duplicate_rejection(prepared.policy.window), report);
            }
            let stored_value = stored_value.clone();
            return self.replay(index, stored_value, report);
        }
        // The first item is not done: both will be redelivered, and the store decides between them.
        let retry_after = match self.by_index.get(&first).map(|answer| answer.outcome.disposition()) {
            Some(Disposition::Retry { after }) => after,
            _ => Duration::from_secs(1),
        };
        self.reject(index, prepared.in_flight_rejection(retry_after), report);
    }
}
