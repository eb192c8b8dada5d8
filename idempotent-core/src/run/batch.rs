//! Batches: many deliveries for one handler call, each claimed and settled on its own.
mod answers;
mod completions;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::iter::repeat_with;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Instant;

use futures_util::future::{JoinAll, join_all};
use futures_util::stream::{Collect, FuturesOrdered};
use futures_util::{FutureExt, StreamExt};

use self::answers::{Answers, BatchHandlerEnd};
use super::attempt::{AbortReason, Attempt};
use super::claim::{ClaimReply, await_turn, check_token, handle_reply, send_claim};
use super::not_acquired::{NotAcquired, duplicate_rejection};
use super::prepare::prepare;
use super::prepared::Prepared;
use super::release_on_drop::ReleaseOnDrop;
use super::report::Report;
use crate::context::TaskContext;
use crate::engine::{Engine, KeyLookup, KnownInFlight, PendingClaim, no_answer};
use crate::executor::{BatchItem, Call, Handler};
use crate::outcome::OutcomeSlot;
use crate::transaction::CallStore;
use crate::{
    Claim, Codec, Event, Fingerprint, InFlight, Key, Lease, Outcome, Rejection, ReplyStrategy, StoreError,
    StoreErrorKind,
};

/// The answer to one item of a batch.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct BatchOutput<O> {
    /// The output that a single run would have returned.
    pub output: O,
    /// The outcome by which to settle the delivery.
    pub outcome: Outcome,
    /// The hashed key, or `None` if the call was rejected before its key was derived.
    pub key: Option<Key>,
    /// The number of the attempt, or `None` if the key was not granted.
    pub attempt: Option<u32>,
}

/// An item of a batch after the claims.
// Most items are claimed, so a box for the largest variant would be an allocation for most items.
#[allow(clippy::large_enum_variant)]
enum BatchEntry<'e, T> {
    /// The key was granted, so the handler gets the item.
    Claimed(T, Attempt<'e>, Report<'e>),
    /// The key was consumed by an earlier run.
    Consumed(Option<Arc<[u8]>>, Report<'e>),
    /// The item is rejected.
    Rejected(Rejection, Report<'e>),
    /// An earlier item of this batch, at this index, is the same call.
    Duplicate(usize, Arc<Prepared>, Report<'e>),
    /// An earlier item has the same key with another payload. The store is asked again once that item is settled.
    PayloadDiffers(Arc<Prepared>, Report<'e>),
}

/// An item that needs another request.
enum Unanswered<'e, T> {
    /// The claim is sent alone. An earlier request since this instant may have been granted.
    Claim(T, Arc<Prepared>, ReleaseOnDrop<'e>, Option<Instant>),
    NotAcquired(NotAcquired),
}

/// A claimed item with its index.
type ClaimedItem<'e> = (usize, Attempt<'e>, Report<'e>);

/// Claims each item, runs the handler once with the granted items, and settles each of them.
pub(super) async fn run<P, C, R, T, F, Fut>(
    engine: &Arc<Engine>,
    mut items: Vec<(Call, T)>,
    handler: Handler<P, C, R, F>,
) -> Vec<BatchOutput<P::Output<R>>>
where
    P: ReplyStrategy<R>,
    C: Codec<P::Value>,
    F: FnOnce(Vec<BatchItem<T>>) -> Fut,
    Fut: Future<Output = Vec<R>>,
{
    let context = TaskContext::current();
    if let Some(needed) = P::policy() {
        for (call, _) in &mut items {
            call.add_needed(engine.policy(&call.identity.scene), needed);
        }
    }
    let (run, rules) = handler.take();
    let mut others = Vec::new();
    let given = items.len();
    let (mut batch_items, mut claimed): (Vec<_>, Vec<ClaimedItem<'_>>) =
        (Vec::with_capacity(given), Vec::with_capacity(given));
    for (index, entry) in claim_batch(engine, items, &context).await {
        match entry {
            // The last claim may have been granted long after the first.
            BatchEntry::Claimed(item, mut attempt, mut report) => match attempt.late_rejection(engine.clock.now()) {
                Some(rejection) => {
                    attempt.refund().await;
                    others.push((index, BatchEntry::Rejected(rejection, report)));
                }
                None => {
                    attempt.start(&mut report);
                    batch_items.push(BatchItem { item, lease: attempt.lease.clone() });
                    claimed.push((index, attempt, report));
                }
            },
            other => others.push((index, other)),
        }
    }
    let mut answers = Answers::new(&rules, given);
    if !batch_items.is_empty() {
        let nested_slot = OutcomeSlot::default();
        let ended = run_handler::<P, R, T, F, Fut>(engine, &context, &nested_slot, run, batch_items, &claimed).await;
        answers.settle(ended, claimed, nested_slot.take_outcome()).await;
    }
    for (index, entry) in others {
        match entry {
            BatchEntry::Consumed(value, report) => answers.replay(index, value, report),
            BatchEntry::Rejected(rejection, report) => answers.reject(index, rejection, report),
            BatchEntry::Duplicate(first, prepared, report) if answers.is_duplicate(first) => {
                claim_late(engine, index, prepared, report, &context, &mut answers).await;
            }
            BatchEntry::Duplicate(first, prepared, report) => answers.answer_duplicate(index, first, &prepared, report),
            BatchEntry::PayloadDiffers(prepared, report) => {
                claim_late(engine, index, prepared, report, &context, &mut answers).await
            }
            // Handled in the loop above.
            BatchEntry::Claimed(_, _, report) => answers.reject(index, Rejection::LeaseLost, report),
        }
    }
    answers.in_order()
}

async fn claim_batch<'e, T>(
    engine: &'e Arc<Engine>,
    items: Vec<(Call, T)>,
    context: &TaskContext,
) -> Vec<(usize, BatchEntry<'e, T>)> {
    let mut first_by_key: HashMap<u128, (usize, Option<Fingerprint>)> = HashMap::with_capacity(items.len());
    let (mut to_claim, mut entries) = (Vec::with_capacity(items.len()), Vec::with_capacity(items.len()));
    // Answered after the items that they refer to.
    let mut duplicates = Vec::new();
    let mut began = None;
    for (index, (mut call, item)) in items.into_iter().enumerate() {
        call.transaction_store = call.transaction_store.map(CallStore::for_batch);
        let mut report = Report::begin(engine, &call.identity, context);
        match prepare(engine, call, context, &mut report) {
            Err(rejection) => entries.push((index, BatchEntry::Rejected(rejection, report))),
            Ok(prepared) => {
                if prepared.is_token
                    && let Err(not_acquired) = check_token(engine, &prepared, &report).await
                {
                    entries.push((index, unclaimed_entry(engine, not_acquired, report).await));
                    continue;
                }
                if prepared.ordering.is_some() {
                    match await_turn(engine, &prepared, &report, false).await {
                        Ok(since) => began = Some(began.map_or(since, |began: Instant| began.min(since))),
                        Err(not_acquired) => {
                            entries.push((index, unclaimed_entry(engine, not_acquired, report).await));
                            continue;
                        }
                    }
                }
                let own = prepared.request.fingerprint;
                match first_by_key.entry(prepared.request.key.hash()) {
                    Entry::Vacant(vacant) => {
                        vacant.insert((index, own));
                        to_claim.push((index, item, prepared, report));
                    }
                    Entry::Occupied(occupied) => {
                        let (first, fingerprint) = occupied.get();
                        duplicates.push((
                            index,
                            match *fingerprint == own {
                                true => BatchEntry::Duplicate(*first, prepared, report),
                                false => BatchEntry::PayloadDiffers(prepared, report),
                            },
                        ));
                    }
                }
            }
        }
    }
    send_claims(engine, to_claim, began, context, &mut entries).await;
    entries.sort_unstable_by_key(|(index, _)| *index);
    entries.extend(duplicates);
    entries
}

/// Sends the claims in one call if the store can, or concurrently otherwise.
async fn send_claims<'e, T>(
    engine: &'e Arc<Engine>,
    to_claim: Vec<(usize, T, Arc<Prepared>, Report<'e>)>,
    began: Option<Instant>,
    context: &TaskContext,
    entries: &mut Vec<(usize, BatchEntry<'e, T>)>,
) {
    let guards: Vec<_> = to_claim.iter().map(|(_, _, own, _)| ReleaseOnDrop::new(engine, own.clone())).collect();
    let now = engine.clock.now();
    let sent = began.map_or(now, |began| began.min(now));
    let known: Vec<_> = to_claim.iter().map(|(_, _, own, _)| known_in_flight(engine, own, now)).collect();
    let unknown = to_claim.iter().zip(&known).filter(|(_, known)| known.is_none());
    let unknown: Vec<_> = unknown.map(|((_, _, own, report), _)| (&**own, report)).collect();
    let batch_replies = match (engine.store.capabilities().batch, &unknown[..]) {
        (Some(batch), [(_, report), _, ..]) => {
            let requests: Vec<_> = unknown.iter().map(|(own, _)| own.request.clone()).collect();
            let pending: Vec<_> = unknown.iter().map(|(own, _)| pending_claim(engine, own, now)).collect();
            let timeout = requests.iter().map(|request| request.lease / 3).min().unwrap_or_default();
            let replies = engine.before(|| now + timeout, batch.claim_all(&requests)).await.unwrap_or_default();
            report_batch_claim(report, now, &replies);
            let replies = replies.into_iter().map(Some).chain(repeat_with(|| None));
            Some(replies.zip(pending))
        }
        _ => None,
    };
    let batched = batch_replies.is_some();
    let mut batch_replies = batch_replies.into_iter().flatten();
    let mut late = Vec::new();
    for (((index, item, prepared, mut report), guard), known) in to_claim.into_iter().zip(guards).zip(known) {
        let batch_reply = if known.is_none() { batch_replies.next() } else { None };
        let (batch_reply, pending) = batch_reply.unwrap_or_default();
        let reply = match (known, batch_reply) {
            (Some(known), _) => {
                report.claim_exempt();
                ClaimReply::known(sent, &known)
            }
            (None, Some(Ok(answer))) if answer != Claim::InFlight(InFlight::Busy) => {
                report.claim_answered();
                ClaimReply::new(sent, false, Ok(answer)).noted(pending, &prepared.request, engine.clock.now())
            }
            (None, batch_reply) => {
                // Ended first: a call never waits for its own mark.
                drop(pending);
                if let Some(Err(error)) = &batch_reply {
                    report.event(&Event::StoreFailed { step: "claim", error });
                }
                // The lease may have begun with the batch request, or when the call was admitted.
                let is_refused = matches!(&batch_reply, Some(Err(error)) if error.kind() == StoreErrorKind::NotApplied);
                let since = (batched && !is_refused || began.is_some()).then_some(sent);
                late.push((index, Unanswered::Claim(item, prepared, guard, since), report));
                continue;
            }
        };
        match handle_reply(engine, guard, reply, context, &mut report) {
            Ok(attempt) => entries.push((index, BatchEntry::Claimed(item, attempt, report))),
            Err(not_acquired) => late.push((index, Unanswered::NotAcquired(not_acquired), report)),
        }
    }
    let late = late.into_iter().map(|(index, unanswered, mut report)| async move {
        let claimed = match unanswered {
            Unanswered::Claim(item, prepared, guard, mut ambiguous_since) => {
                let reply =
                    send_claim(engine, &prepared, &report, &mut ambiguous_since, None, engine.clock.now()).await;
                handle_reply(engine, guard, reply, context, &mut report).map(|attempt| (item, attempt))
            }
            Unanswered::NotAcquired(not_acquired) => Err(not_acquired),
        };
        let entry = match claimed {
            Err(not_acquired) => unclaimed_entry(engine, not_acquired, report).await,
            Ok((item, attempt)) => BatchEntry::Claimed(item, attempt, report),
        };
        (index, entry)
    });
    entries.extend(all(late).await.into_iter().flatten());
}

fn known_in_flight(engine: &Engine, prepared: &Prepared, now: Instant) -> Option<KnownInFlight> {
    prepared.in_flight_keys(engine)?.in_flight(&prepared.request, now)
}

/// Marks the key as claimed, so that equal calls of this executor wait for the answer.
fn pending_claim(engine: &Engine, prepared: &Prepared, now: Instant) -> Option<PendingClaim> {
    match prepared.in_flight_keys(engine)?.look_up(&prepared.request, now) {
        KeyLookup::Ask(pending) => pending,
        KeyLookup::InFlight(_) | KeyLookup::Claimed(_) => None,
    }
}

/// Reports the call that claims a batch, as a call of the batch's first run.
fn report_batch_claim(report: &Report<'_>, sent: Instant, replies: &[Result<Claim, StoreError>]) {
    match replies.first() {
        Some(reply) => report.store_answered("claim", sent, reply),
        None => report.store_answered::<()>("claim", sent, &Err(no_answer("within a third of the lease"))),
    }
}

/// Claims an item whose key occurred earlier in the batch, as if it had come alone. A key that is free by now is not
/// handled in this batch any more.
async fn claim_late<'e, P, C, R>(
    engine: &'e Arc<Engine>,
    index: usize,
    prepared: Arc<Prepared>,
    mut report: Report<'e>,
    context: &TaskContext,
    answers: &mut Answers<'_, P, C, R>,
) where
    P: ReplyStrategy<R>,
    C: Codec<P::Value>,
{
    let guard = ReleaseOnDrop::new(engine, prepared.clone());
    let retry_after = prepared.policy.in_flight_delay;
    let reply = send_claim(engine, &prepared, &report, &mut None, None, engine.clock.now()).await;
    match handle_reply(engine, guard, reply, context, &mut report) {
        Ok(mut attempt) => {
            attempt.refund().await;
            answers.reject(index, Rejection::InFlight { retry_after, message: None }, report);
        }
        Err(NotAcquired::Replay(value)) => answers.replay(index, value, report),
        Err(NotAcquired::Rejected(rejection)) => answers.reject(index, rejection, report),
        Err(NotAcquired::Duplicate(prepared)) => {
            answers.reject(index, duplicate_rejection(engine, &prepared).await, report)
        }
        Err(NotAcquired::Unprotected(error, _)) => answers.reject(index, error.into(), report),
    }
}

/// Awaits all futures, and returns their outputs in order, in several parts.
fn all<F: Future>(futures: impl IntoIterator<Item = F>) -> Collect<FuturesOrdered<JoinAll<F>>, Vec<Vec<F::Output>>> {
    // `join_all` makes a task of each of more than 30 futures, and one allocation for fewer.
    const PART: usize = 30;
    let mut futures = futures.into_iter().peekable();
    let mut parts = FuturesOrdered::new();
    while futures.peek().is_some() {
        parts.push_back(join_all(futures.by_ref().take(PART)));
    }
    parts.collect()
}

async fn unclaimed_entry<'e, T>(engine: &Engine, not_acquired: NotAcquired, report: Report<'e>) -> BatchEntry<'e, T> {
    match not_acquired {
        NotAcquired::Replay(value) => BatchEntry::Consumed(value, report),
        NotAcquired::Rejected(rejection) => BatchEntry::Rejected(rejection, report),
        NotAcquired::Duplicate(prepared) => BatchEntry::Rejected(duplicate_rejection(engine, &prepared).await, report),
        NotAcquired::Unprotected(error, _) => BatchEntry::Rejected(error.into(), report),
    }
}

async fn run_handler<P, R, T, F, Fut>(
    engine: &Engine,
    context: &TaskContext,
    nested_slot: &OutcomeSlot,
    run: F,
    batch_items: Vec<BatchItem<T>>,
    claimed: &[ClaimedItem<'_>],
) -> BatchHandlerEnd<P::Value, P::Failure>
where
    P: ReplyStrategy<R>,
    F: FnOnce(Vec<BatchItem<T>>) -> Fut,
    Fut: Future<Output = Vec<R>>,
{
    let items = batch_items.iter().map(|item| item.lease.clone());
    let leases: Arc<[Lease]> = context.outer_leases.iter().flat_map(|leases| &**leases).cloned().chain(items).collect();
    let inner_context = TaskContext { slot: Some(nested_slot.clone()), outer_leases: Some(leases), ..context.clone() };
    let handled = async {
        let mut replies = Vec::new();
        for reply in run(batch_items).await {
            replies.push(P::split(reply).await);
        }
        replies
    };
    let running = AssertUnwindSafe(inner_context.enter(Box::pin(handled))).catch_unwind();
    tokio::select! {
        biased;
        ended = running => ended.map_or_else(BatchHandlerEnd::Panicked, BatchHandlerEnd::Replies),
        _ = all(claimed.iter().map(|(_, attempt, _)| attempt.lease_lost())) => BatchHandlerEnd::Aborted(AbortReason::LeaseLost),
        () = engine.grace_ended() => BatchHandlerEnd::Aborted(AbortReason::GraceEnded),
    }
}
