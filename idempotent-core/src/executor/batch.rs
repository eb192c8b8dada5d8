//! Many deliveries, one handler: each item is claimed and settled on its own.
use std::any::Any;
use std::collections::{BTreeMap, HashMap};
use std::future::Future;
use std::panic::{AssertUnwindSafe, resume_unwind};
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::join_all;

use super::attempt::{Attempt, PutDown};
use super::cancel::OnDrop;
use super::claim::{Asked, Prepared, Turned, unanswered};
use super::report::Report;
use super::{Call, Executor, Handler};
use crate::clock::before;
use crate::context::Frame;
use crate::{Claim, Codec, Disposition, Fingerprint, InFlight, Lease, Outcome, Rejection, Replies};

/// An item that is this run's to handle.
#[derive(Debug)]
#[non_exhaustive]
pub struct BatchItem<T> {
    /// The item.
    pub item: T,
    /// Its own lease: fencing number, attempt, and whether it is lost.
    pub lease: Lease,
}

/// What an item of a batch came to.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Answer<O> {
    /// What the caller of a single run would have got.
    pub output: O,
    /// How its delivery is to be settled.
    pub outcome: Outcome,
}

/// An item on its way.
enum Place<T> {
    /// To be handled.
    Mine(T, Box<Attempt>, Report),
    /// Consumed before.
    Consumed(Option<Arc<[u8]>>, Report),
    /// Not to be handled.
    Away(Rejection, Report),
    /// The same key stands at an earlier place.
    Same(usize, Report),
}

/// How the handler ended.
enum Ended<R> {
    Replies(Vec<R>),
    Dropped,
    Panicked(Box<dyn Any + Send>),
}

type Answers<O> = BTreeMap<usize, Answer<O>>;

/// What is known of the places that duplicates inside the batch refer to: the bytes kept, if the item is done.
type Firsts = HashMap<usize, Option<Arc<[u8]>>>;

impl Executor {
    /// Runs `handler` once with all items whose key is free, and answers each item, in order. Duplicates inside
    /// the batch collapse: the first is handled, the others get its result. If no item is free the handler is not
    /// called. Policies that wait for a run in flight do not wait here, and none runs unprotected.
    ///
    /// Settle each delivery by its own [`Answer::outcome`]. A handler that answers for another number of items than
    /// it was given frees all of them.
    ///
    /// # Cancellation
    /// As [`run`](Self::run), for each item.
    ///
    /// # Panics
    /// A panic of the handler frees the keys it was given, then goes on.
    pub async fn run_batch<P, C, R, T, F, Fut>(
        &self,
        items: Vec<(Call, T)>,
        handler: Handler<P, C, R, F>,
    ) -> Vec<Answer<P::Output<R>>>
    where
        P: Replies<R>,
        C: Codec<P::Value>,
        F: FnOnce(Vec<BatchItem<T>>) -> Fut,
        Fut: Future<Output = Vec<R>>,
    {
        let frame = Frame::current();
        let (run, rules) = handler.take();
        let (mut given, mut mine, mut others) = (Vec::new(), Vec::new(), Vec::new());
        for (at, place) in self.claim_batch(items, &frame).await {
            match place {
                // The last claim may have come long after the first.
                Place::Mine(item, mut attempt, mut report) => match attempt.too_late().await {
                    Some(rejection) => others.push((at, Place::Away(rejection, report))),
                    None => {
                        attempt.start(&mut report);
                        given.push(BatchItem { item, lease: attempt.lease.clone() });
                        mine.push((at, attempt, report));
                    }
                },
                other => others.push((at, other)),
            }
        }
        let (mut answers, mut firsts) = (Answers::new(), Firsts::new());
        if !given.is_empty() {
            let ended = self.proceed_batch(&frame, run, given).await;
            settle(ended, mine, &rules, &mut answers, &mut firsts).await;
        }
        for (at, place) in others {
            answer(at, place, &rules, &mut answers, &mut firsts);
        }
        answers.into_values().collect()
    }

    async fn claim_batch<T>(&self, items: Vec<(Call, T)>, frame: &Frame) -> Vec<(usize, Place<T>)> {
        let mut seen: HashMap<u128, (usize, Option<Fingerprint>)> = HashMap::new();
        let (mut asked, mut places) = (Vec::new(), Vec::new());
        for (at, (call, item)) in items.into_iter().enumerate() {
            let mut report = Report::begin(self, &call.identity, frame);
            match self.prepare(call, frame, &mut report) {
                Err(turned) => places.push((at, turned.place(report))),
                Ok(prepared) => {
                    let (hash, own) = (prepared.request.key.hash(), prepared.request.fingerprint);
                    match seen.get(&hash) {
                        None => {
                            seen.insert(hash, (at, own));
                            asked.push((at, item, prepared, report));
                        }
                        Some((_, Some(first))) if own.is_some_and(|own| own != *first) => {
                            places.push((at, Place::Away(Rejection::Mismatch, report)));
                        }
                        Some((first, _)) => places.push((at, Place::Same(*first, report))),
                    }
                }
            }
        }
        places.extend(self.ask_batch(asked, frame).await);
        // Those to be handled first, so that no lease waits; duplicates behind what they refer to.
        places.sort_by_key(|(at, place)| (matches!(place, Place::Same(..)), *at));
        places
    }

    /// One call of the store for all where it can, else side by side.
    async fn ask_batch<T>(&self, asked: Vec<(usize, T, Prepared, Report)>, frame: &Frame) -> Vec<(usize, Place<T>)> {
        let guards: Vec<_> = asked.iter().map(|(_, _, own, _)| OnDrop::new(self, &own.held, &own.terms)).collect();
        let sent = self.0.clock.now();
        let mut at_once = match (self.0.store.abilities().batch, &asked[..]) {
            (Some(batch), [_, _, ..]) => {
                let requests: Vec<_> = asked.iter().map(|(_, _, own, _)| own.request.clone()).collect();
                let patience = requests.iter().map(|request| request.lease / 3).min().unwrap_or_default();
                let told = before(&*self.0.clock, sent + patience, batch.claim_all(&requests)).await;
                // Each is then asked for by itself, by its own token.
                told.unwrap_or_else(|| requests.iter().map(|_| Err(unanswered())).collect())
            }
            _ => Vec::new(),
        }
        .into_iter();
        let claims = asked.into_iter().zip(guards).map(|((at, item, prepared, mut report), guard)| {
            let told = at_once.next();
            async move {
                let asked = match told {
                    Some(Ok(claim)) if claim != Claim::InFlight(InFlight::Busy) => Asked { sent, answer: Ok(claim) },
                    // Its lease may have begun with the first asking.
                    Some(_) => self.ask(&prepared, &report, &mut Some(sent)).await,
                    None => self.ask(&prepared, &report, &mut None).await,
                };
                let place = match self.granted(&prepared, guard, asked, frame, &mut report) {
                    Err(turned) => turned.place(report),
                    Ok(attempt) => Place::Mine(item, Box::new(attempt), report),
                };
                (at, place)
            }
        });
        join_all(claims).await
    }

    async fn proceed_batch<R, T, F, Fut>(&self, frame: &Frame, run: F, given: Vec<BatchItem<T>>) -> Ended<R>
    where
        F: FnOnce(Vec<BatchItem<T>>) -> Fut,
        Fut: Future<Output = Vec<R>>,
    {
        let around = Frame { slot: None, ..frame.clone() };
        let running = AssertUnwindSafe(around.enter(Box::pin(async { run(given).await }))).catch_unwind();
        tokio::select! {
            biased;
            ended = running => ended.map_or_else(Ended::Panicked, Ended::Replies),
            () = self.closed() => Ended::Dropped,
            () = self.0.wheel.stand_by() => Ended::Dropped, // never ends
        }
    }
}

impl Turned {
    fn place<T>(self, report: Report) -> Place<T> {
        match self {
            Self::Replay(value) => Place::Consumed(value, report),
            Self::Away(rejection) => Place::Away(rejection, report),
            Self::Unprotected(error) => Place::Away(error.into(), report),
        }
    }
}

/// Puts down each item that was handled.
async fn settle<P, C, R>(
    ended: Ended<R>,
    mine: Vec<(usize, Box<Attempt>, Report)>,
    rules: &Handler<P, C, R, ()>,
    answers: &mut Answers<P::Output<R>>,
    firsts: &mut Firsts,
) where
    P: Replies<R>,
    C: Codec<P::Value>,
{
    let given = mine.len();
    match ended {
        Ended::Replies(replies) if replies.len() == given => {
            let settled =
                join_all(replies.into_iter().zip(mine).map(|(reply, (at, mut attempt, report))| async move {
                    (at, attempt.put_down(report, P::split(reply).await, None, rules).await)
                }));
            for (at, PutDown { output, outcome, kept }) in settled.await {
                if outcome == Outcome::Ran {
                    firsts.insert(at, kept);
                }
                answers.insert(at, Answer { output, outcome });
            }
        }
        Ended::Replies(replies) => {
            let answered = replies.len();
            let released = release_all(mine, "the batch handler did not answer for each item").await;
            for (at, outcome) in released {
                let output = rules.reject(Rejection::BatchAnswers { given, answered });
                answers.insert(at, Answer { output, outcome });
            }
        }
        Ended::Dropped => {
            for (at, mut attempt, report) in mine {
                attempt.end(report, Outcome::Abandoned);
                let output = rules.reject(Rejection::Draining { retry_after: attempt.lease.remaining() });
                answers.insert(at, Answer { output, outcome: Outcome::Abandoned });
            }
        }
        Ended::Panicked(panic) => {
            release_all(mine, "the handler panicked").await;
            resume_unwind(panic)
        }
    }
}

async fn release_all(mine: Vec<(usize, Box<Attempt>, Report)>, error: &str) -> Vec<(usize, Outcome)> {
    join_all(mine.into_iter().map(|(at, mut attempt, report)| async move {
        let outcome = attempt.delete(&report, false, error, None).await;
        attempt.end(report, outcome.clone());
        (at, outcome)
    }))
    .await
}

/// Answers an item that was not handled; those of the same key come behind the one they refer to.
fn answer<P, C, R, T>(
    at: usize,
    place: Place<T>,
    rules: &Handler<P, C, R, ()>,
    answers: &mut Answers<P::Output<R>>,
    firsts: &mut Firsts,
) where
    P: Replies<R>,
    C: Codec<P::Value>,
{
    let (consumed, report) = match place {
        Place::Consumed(value, report) => {
            firsts.insert(at, value.clone());
            (Ok(value), report)
        }
        Place::Same(first, report) => match firsts.get(&first) {
            Some(kept) => (Ok(kept.clone()), report),
            // The first is not done: its next delivery and this one's meet at the store.
            None => {
                let retry_after = match answers.get(&first).map(|answer| answer.outcome.disposition()) {
                    Some(Disposition::Retry { after }) => after,
                    _ => Duration::from_secs(1),
                };
                (Err(Rejection::InFlight { retry_after, message: None }), report)
            }
        },
        Place::Away(rejection, report) => (Err(rejection), report),
        // Taken by the caller.
        Place::Mine(_, _, report) => (Err(Rejection::LeaseLost), report),
    };
    let decoded = consumed.and_then(|value| {
        C::decode(value.as_deref()).map_err(|cause| Rejection::ConsumedWithoutResult { cause: Some(cause) })
    });
    let (output, outcome) = match decoded {
        Ok(value) => (P::replayed(value), Outcome::Replayed),
        Err(rejection) => {
            let outcome = Outcome::of(&rejection);
            (rules.reject(rejection), outcome)
        }
    };
    report.end(outcome.clone());
    answers.insert(at, Answer { output, outcome });
}
