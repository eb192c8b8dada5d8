//! What the items of a batch are answered.
use std::any::Any;
use std::collections::{BTreeMap, HashMap};
use std::panic::resume_unwind;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;

use super::completions::complete;
use super::{Answer, Mine};
use crate::executor::Handler;
use crate::run::attempt::AbortReason;
use crate::run::classify::{RetryDecision, classify};
use crate::run::prepared::Prepared;
use crate::run::report::Report;
use crate::run::settle::SettledRun;
use crate::{Codec, Disposition, Outcome, Rejection, Replies, Split};

/// How the handler ended.
pub(super) enum Ended<V, F> {
    Replies(Vec<Split<V, F>>),
    AbortReason(AbortReason),
    Panicked(Box<dyn Any + Send>),
}

/// The answers so far, by place.
pub(super) struct Answers<'a, P: Replies<R>, C, R> {
    rules: &'a Handler<P, C, R, ()>,
    told: BTreeMap<usize, Answer<P::Output<R>>>,
    /// The bytes of places that are done, for duplicates that refer to them.
    done: HashMap<usize, Option<Arc<[u8]>>>,
}

impl<'a, P, C, R> Answers<'a, P, C, R>
where
    P: Replies<R>,
    C: Codec<P::Value>,
{
    pub(super) fn new(rules: &'a Handler<P, C, R, ()>) -> Self {
        Self { rules, told: BTreeMap::new(), done: HashMap::new() }
    }

    pub(super) fn in_order(self) -> Vec<Answer<P::Output<R>>> {
        self.told.into_values().collect()
    }

    /// Puts down each item that was handled. `inner` is what the runs inside the handler came to: nobody can tell
    /// which item they belong to, so a deferral puts off every item that failed.
    pub(super) async fn settle(
        &mut self,
        ended: Ended<P::Value, P::Failure>,
        mine: Vec<Mine<'_>>,
        inner: Option<Outcome>,
    ) {
        let given = mine.len();
        match ended {
            Ended::Replies(replies) if replies.len() == given => self.settle_each(replies, mine, inner).await,
            Ended::Replies(replies) => {
                let answered = replies.len();
                let error = "the batch handler did not answer for each item";
                let released = mine.into_iter().map(|(at, mut attempt, mut report)| async move {
                    let outcome = attempt.delete(&report, RetryDecision::AnotherRun, error.into(), None).await;
                    attempt.end(&mut report, outcome.clone());
                    (at, outcome)
                });
                for (at, outcome) in join_all(released).await {
                    let output = self.rules.reject(Rejection::BatchAnswers { given, answered });
                    self.told.insert(at, Answer { output, outcome });
                }
            }
            Ended::AbortReason(why) => {
                for (at, mut attempt, mut report) in mine {
                    let outcome = match why {
                        AbortReason::LeaseLost => Outcome::LeaseLost,
                        AbortReason::Closed => Outcome::Abandoned,
                    };
                    let output = self.rules.reject(attempt.abandon(why, &mut report));
                    self.told.insert(at, Answer { output, outcome });
                }
            }
            Ended::Panicked(panic) => {
                join_all(
                    mine.into_iter()
                        .map(|(_, mut attempt, mut report)| async move { attempt.panicked(&mut report).await }),
                )
                .await;
                resume_unwind(panic)
            }
        }
    }

    /// All are judged before the first is put down. A panic in a rule is its own item's: the others are put down, and
    /// then it goes on.
    async fn settle_each(
        &mut self,
        replies: Vec<Split<P::Value, P::Failure>>,
        mine: Vec<Mine<'_>>,
        inner: Option<Outcome>,
    ) {
        let (rules, mut panicked) = (self.rules, None);
        let (mut judged, mut broken) = (Vec::new(), Vec::new());
        for (reply, (at, attempt, report)) in replies.into_iter().zip(mine) {
            match classify(reply, rules, attempt.terms(), &report) {
                Ok(answer) => judged.push((at, attempt, report, answer)),
                Err(panic) => {
                    panicked = Some(panic);
                    broken.push((attempt, report));
                }
            }
        }
        let told = complete(&mut judged).await;
        let settled = judged.into_iter().zip(told).map(|((at, mut attempt, mut report, answer), told)| {
            let inner = inner.clone();
            async move { (at, attempt.settle(&mut report, answer, told, inner, rules).await) }
        });
        for (at, SettledRun { output, outcome, kept }) in join_all(settled).await {
            if outcome == Outcome::Ran {
                self.done.insert(at, kept);
            }
            self.told.insert(at, Answer { output, outcome });
        }
        for (mut attempt, mut report) in broken {
            attempt.panicked(&mut report).await;
        }
        if let Some(panic) = panicked {
            resume_unwind(panic)
        }
    }

    pub(super) fn reject(&mut self, at: usize, rejection: Rejection, mut report: Report<'_>) {
        let outcome = Outcome::of(&rejection);
        report.end(outcome.clone());
        let output = self.rules.reject(rejection);
        self.told.insert(at, Answer { output, outcome });
    }

    pub(super) fn replay(&mut self, at: usize, value: Option<Arc<[u8]>>, mut report: Report<'_>) {
        match C::decode(value.as_deref()) {
            Ok(decoded) => {
                report.end(Outcome::Replayed);
                self.told.insert(at, Answer { output: P::replayed(decoded), outcome: Outcome::Replayed });
            }
            Err(cause) => self.reject(at, Rejection::ConsumedWithoutResult { cause: Some(cause) }, report),
        }
        self.done.insert(at, value);
    }

    /// Whether the place was a duplicate itself: when it was done, only the store knows.
    pub(super) fn is_duplicate(&self, at: usize) -> bool {
        self.told.get(&at).is_some_and(|answer| answer.outcome == Outcome::Duplicate)
    }

    /// A duplicate of an earlier place.
    pub(super) fn same(&mut self, at: usize, first: usize, prepared: &Prepared, report: Report<'_>) {
        if let Some(kept) = self.done.get(&first) {
            if prepared.refuses_duplicates() {
                // Done just now: all of the window is left.
                return self.reject(at, prepared.duplicate(prepared.terms.window), report);
            }
            let kept = kept.clone();
            return self.replay(at, kept, report);
        }
        // The first is not done: its next delivery and this one's meet at the store.
        let retry_after = match self.told.get(&first).map(|answer| answer.outcome.disposition()) {
            Some(Disposition::Retry { after }) => after,
            _ => Duration::from_secs(1),
        };
        self.reject(at, prepared.in_flight(retry_after), report);
    }
}
