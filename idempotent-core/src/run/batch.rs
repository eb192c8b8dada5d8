//! Many deliveries, one handler: each item is claimed and settled on its own.
mod answers;
mod completions;

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Instant;

use futures_util::FutureExt;
use futures_util::future::join_all;

use self::answers::{Answers, Ended};
use super::attempt::{AbortReason, Attempt};
use super::claim::{ClaimReply, ask, await_turn, granted, issued};
use super::not_acquired::{NotAcquired, duplicate};
use super::prepare::prepare;
use super::prepared::Prepared;
use super::release_on_drop::ReleaseOnDrop;
use super::report::Report;
use crate::context::TaskContext;
use crate::engine::Engine;
use crate::executor::{BatchItem, Call, Handler};
use crate::outcome::OutcomeSlot;
use crate::transaction::CallStore;
use crate::{Claim, Codec, Event, Fingerprint, InFlight, Lease, Outcome, Rejection, Replies};

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
enum Place<'e, T> {
    /// To be handled.
    Mine(T, Attempt<'e>, Report<'e>),
    /// Consumed before.
    Consumed(Option<Arc<[u8]>>, Report<'e>),
    /// Not to be handled.
    Away(Rejection, Report<'e>),
    /// The same call stands at an earlier place.
    Same(usize, Box<Prepared>, Report<'e>),
    /// An earlier place has the same key with another payload: the record is asked once that one is settled.
    Differs(Box<Prepared>, Report<'e>),
}

/// A handled item, and its place.
type Mine<'e> = (usize, Attempt<'e>, Report<'e>);

/// Claims each item, runs the handler once with the items that were granted, and settles each of them.
pub(super) async fn run<P, C, R, T, F, Fut>(
    engine: &Arc<Engine>,
    mut items: Vec<(Call, T)>,
    handler: Handler<P, C, R, F>,
) -> Vec<Answer<P::Output<R>>>
where
    P: Replies<R>,
    C: Codec<P::Value>,
    F: FnOnce(Vec<BatchItem<T>>) -> Fut,
    Fut: Future<Output = Vec<R>>,
{
    let frame = TaskContext::current();
    if let Some(needed) = P::policy() {
        for (call, _) in &mut items {
            call.policy = call.policy.or(engine.policy(&call.identity.scene)).or(needed);
        }
    }
    let (run, rules) = handler.take();
    let mut others = Vec::new();
    let (mut given, mut mine): (Vec<_>, Vec<Mine<'_>>) = (Vec::new(), Vec::new());
    for (at, place) in claim_batch(engine, items, &frame).await {
        match place {
            // The last claim may have come long after the first.
            Place::Mine(item, mut attempt, mut report) => match attempt.too_late(engine.clock.now()) {
                Some(rejection) => {
                    attempt.give_back().await;
                    others.push((at, Place::Away(rejection, report)));
                }
                None => {
                    attempt.start(&mut report);
                    given.push(BatchItem { item, lease: attempt.lease.clone() });
                    mine.push((at, attempt, report));
                }
            },
            other => others.push((at, other)),
        }
    }
    let mut answers = Answers::new(&rules);
    if !given.is_empty() {
        let inner = OutcomeSlot::default();
        let ended = proceed_batch::<P, R, T, F, Fut>(engine, &frame, &inner, run, given, &mine).await;
        answers.settle(ended, mine, inner.take_outcome()).await;
    }
    for (at, place) in others {
        match place {
            Place::Consumed(value, report) => answers.replay(at, value, report),
            Place::Away(rejection, report) => answers.reject(at, rejection, report),
            Place::Same(first, prepared, report) if answers.is_duplicate(first) => {
                ask_late(engine, at, prepared, report, &frame, &mut answers).await;
            }
            Place::Same(first, prepared, report) => answers.same(at, first, &prepared, report),
            Place::Differs(prepared, report) => ask_late(engine, at, prepared, report, &frame, &mut answers).await,
            // Taken above.
            Place::Mine(_, _, report) => answers.reject(at, Rejection::LeaseLost, report),
        }
    }
    answers.in_order()
}

async fn claim_batch<'e, T>(
    engine: &'e Arc<Engine>,
    items: Vec<(Call, T)>,
    frame: &TaskContext,
) -> Vec<(usize, Place<'e, T>)> {
    let mut seen: HashMap<u128, (usize, Option<Fingerprint>)> = HashMap::new();
    let (mut asked, mut places) = (Vec::new(), Vec::new());
    let mut began = None;
    for (at, (mut call, item)) in items.into_iter().enumerate() {
        call.via = call.via.map(CallStore::in_a_batch);
        let mut report = Report::begin(engine, &call.identity, frame);
        match prepare(engine, call, frame, &mut report) {
            Err(rejection) => places.push((at, Place::Away(rejection, report))),
            Ok(prepared) => {
                if prepared.issued
                    && let Err(turned) = issued(engine, &prepared, &report).await
                {
                    places.push((at, place(engine, turned, report).await));
                    continue;
                }
                if prepared.comes.is_some() {
                    match await_turn(engine, &prepared, &report, false).await {
                        Ok(since) => began = Some(began.map_or(since, |began: Instant| began.min(since))),
                        Err(turned) => {
                            places.push((at, place(engine, turned, report).await));
                            continue;
                        }
                    }
                }
                let (hash, own) = (prepared.request.key.hash(), prepared.request.fingerprint);
                match seen.get(&hash) {
                    None => {
                        seen.insert(hash, (at, own));
                        asked.push((at, item, prepared, report));
                    }
                    Some((_, first)) if *first != own => {
                        places.push((at, Place::Differs(prepared, report)));
                    }
                    Some((first, _)) => places.push((at, Place::Same(*first, prepared, report))),
                }
            }
        }
    }
    places.extend(ask_batch(engine, asked, began, frame).await);
    // Duplicates behind what they refer to, wherever it stood.
    places.sort_by_key(|(at, place)| (matches!(place, Place::Same(..) | Place::Differs(..)), *at));
    places
}

/// One call of the store for all where it can, else side by side.
async fn ask_batch<'e, T>(
    engine: &'e Arc<Engine>,
    asked: Vec<(usize, T, Box<Prepared>, Report<'e>)>,
    began: Option<Instant>,
    frame: &TaskContext,
) -> Vec<(usize, Place<'e, T>)> {
    let guards: Vec<_> = asked.iter().map(|(_, _, own, _)| ReleaseOnDrop::new(engine, own)).collect();
    let now = engine.clock.now();
    let sent = began.map_or(now, |began| began.min(now));
    let at_once = match (engine.store.abilities().batch, &asked[..]) {
        (Some(batch), [_, _, ..]) => {
            let requests: Vec<_> = asked.iter().map(|(_, _, own, _)| own.request.clone()).collect();
            let patience = requests.iter().map(|request| request.lease / 3).min().unwrap_or_default();
            Some(engine.before(now + patience, batch.claim_all(&requests)).await.unwrap_or_default())
        }
        _ => None,
    };
    let batched = at_once.is_some();
    let mut at_once = at_once.into_iter().flatten();
    let claims = asked.into_iter().zip(guards).map(|((at, item, prepared, mut report), guard)| {
        let told = at_once.next();
        async move {
            let asked = match told {
                Some(Ok(answer)) if answer != Claim::InFlight(InFlight::Busy) => {
                    ClaimReply { sent, unheard: false, answer: Ok(answer) }
                }
                told => {
                    if let Some(Err(error)) = &told {
                        report.event(&Event::StoreFailed { step: "claim", error });
                    }
                    // Its lease may have begun with the asking for all, or when it was let in.
                    let mut unheard = (batched || began.is_some()).then_some(sent);
                    ask(engine, &prepared, &report, &mut unheard, None, engine.clock.now()).await
                }
            };
            let place = match granted(engine, prepared, guard, asked, frame, &mut report) {
                Err(turned) => place(engine, turned, report).await,
                Ok(attempt) => Place::Mine(item, attempt, report),
            };
            (at, place)
        }
    });
    join_all(claims).await
}

/// The same key as an earlier place, another payload: judged by the record, as if it had come alone. If the key
/// is free by now it is not handled in this batch any more.
async fn ask_late<'e, P, C, R>(
    engine: &'e Arc<Engine>,
    at: usize,
    prepared: Box<Prepared>,
    mut report: Report<'e>,
    frame: &TaskContext,
    answers: &mut Answers<'_, P, C, R>,
) where
    P: Replies<R>,
    C: Codec<P::Value>,
{
    let guard = ReleaseOnDrop::new(engine, &prepared);
    let retry_after = prepared.terms.in_flight_delay;
    let asked = ask(engine, &prepared, &report, &mut None, None, engine.clock.now()).await;
    match granted(engine, prepared, guard, asked, frame, &mut report) {
        Ok(mut attempt) => {
            attempt.give_back().await;
            answers.reject(at, Rejection::InFlight { retry_after, message: None }, report);
        }
        Err(NotAcquired::Replay(value)) => answers.replay(at, value, report),
        Err(NotAcquired::Away(rejection)) => answers.reject(at, rejection, report),
        Err(NotAcquired::Duplicate(prepared)) => answers.reject(at, duplicate(engine, &prepared).await, report),
        Err(NotAcquired::Unprotected(error, _)) => answers.reject(at, error.into(), report),
    }
}

async fn place<'e, T>(engine: &Engine, turned: NotAcquired, report: Report<'e>) -> Place<'e, T> {
    match turned {
        NotAcquired::Replay(value) => Place::Consumed(value, report),
        NotAcquired::Away(rejection) => Place::Away(rejection, report),
        NotAcquired::Duplicate(prepared) => Place::Away(duplicate(engine, &prepared).await, report),
        NotAcquired::Unprotected(error, _) => Place::Away(error.into(), report),
    }
}

async fn proceed_batch<P, R, T, F, Fut>(
    engine: &Engine,
    frame: &TaskContext,
    inner: &OutcomeSlot,
    run: F,
    given: Vec<BatchItem<T>>,
    mine: &[Mine<'_>],
) -> Ended<P::Value, P::Failure>
where
    P: Replies<R>,
    F: FnOnce(Vec<BatchItem<T>>) -> Fut,
    Fut: Future<Output = Vec<R>>,
{
    let items = given.iter().map(|item| item.lease.clone());
    let leases: Arc<[Lease]> = frame.around.iter().flat_map(|leases| &**leases).cloned().chain(items).collect();
    let around = TaskContext { slot: Some(inner.clone()), around: Some(leases), ..frame.clone() };
    let handled = async {
        let mut replies = Vec::new();
        for reply in run(given).await {
            replies.push(P::split(reply).await);
        }
        replies
    };
    let running = AssertUnwindSafe(around.enter(Box::pin(handled))).catch_unwind();
    tokio::select! {
        biased;
        ended = running => ended.map_or_else(Ended::Panicked, Ended::Replies),
        _ = join_all(mine.iter().map(|(_, attempt, _)| attempt.lost())) => Ended::AbortReason(AbortReason::LeaseLost),
        () = engine.closed() => Ended::AbortReason(AbortReason::Closed),
    }
}
