//! The claim: requests the key from the store, and retries if the answer may be lost.
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::Either;

use super::attempt::Attempt;
use super::not_acquired::{NotAcquired, not_granted, store_failure};
use super::prepared::{Prepared, ResolvedOrdering};
use super::release_on_drop::ReleaseOnDrop;
use super::report::Report;
use crate::clock::{later, pause};
use crate::context::TaskContext;
use crate::engine::{DrainPhase, Engine, InFlightKeys, KeyLookup, KnownInFlight, PendingClaim, no_answer};
use crate::lease::LeaseTiming;
use crate::ordering::{after, sequence};
use crate::policy::OnInFlight;
use crate::{Claim, ClaimHandle, ClaimRequest, Event, Grant, InFlight, Lease, Rejection, StoreError, StoreErrorKind};

/// An answer to a claim, by the store or from the keys known to be in flight.
pub(super) struct ClaimReply {
    /// An instant no later than the start of the grant's lease, if the key was granted.
    pub(super) sent: Instant,
    /// True if a copy of the claim was sent whose result is unknown.
    pub(super) is_ambiguous: bool,
    pub(super) answer: Result<Claim, StoreError>,
    /// True if the store was not asked.
    is_known: bool,
    /// The mark of a granted claim. Equal calls wait until the run is registered.
    pending: Option<PendingClaim>,
}

impl ClaimReply {
    pub(super) fn new(sent: Instant, is_ambiguous: bool, answer: Result<Claim, StoreError>) -> Self {
        Self { sent, is_ambiguous, answer, is_known: false, pending: None }
    }

    /// Creates the reply to a call whose key is known to be in flight.
    pub(super) fn known(now: Instant, known: &KnownInFlight) -> Self {
        Self { is_known: true, ..Self::new(now, false, Ok(Claim::InFlight(known.in_flight))) }
    }

    /// Notes the answer for equal calls of this executor.
    pub(super) fn noted(mut self, pending: Option<PendingClaim>, request: &ClaimRequest, now: Instant) -> Self {
        match (&self.answer, pending) {
            (Ok(Claim::Acquired(_)), pending) => self.pending = pending,
            (Ok(Claim::InFlight(in_flight)), Some(pending)) => pending.answered(request, *in_flight, now),
            _ => {}
        }
        self
    }
}

/// The pauses between retries of a claim without an answer. All copies carry the same owner token, so the store grants
/// the key at most once.
const RETRY_PAUSES: [Duration; 3] = [Duration::from_millis(10), Duration::from_millis(20), Duration::from_millis(40)];

pub(super) fn claim<'e>(
    engine: &'e Arc<Engine>,
    prepared: Arc<Prepared>,
    context: &TaskContext,
    report: &mut Report<'e>,
) -> impl Future<Output = Result<Attempt<'e>, NotAcquired>> {
    async move {
        let mut began = report.began_at();
        if prepared.is_token {
            Box::pin(check_token(engine, &prepared, report)).await?;
            began = engine.clock.now();
        }
        if prepared.ordering.is_some() {
            began = Box::pin(await_turn(engine, &prepared, report, true)).await?;
        }
        // Armed before the claim is sent, so that a call dropped while the answer is on its way releases the key.
        let mut guard = ReleaseOnDrop::new(engine, prepared);
        let mut ambiguous_since = None;
        // Only pure steps run between `began` and this request.
        let mut reply = send_claim(engine, &guard.prepared, report, &mut ambiguous_since, None, began).await;
        if let (OnInFlight::Wait(max_wait), Ok(Claim::InFlight(in_flight))) =
            (guard.prepared.policy.on_in_flight, &reply.answer)
        {
            let (in_flight, deadline) = (*in_flight, later(engine.clock.now(), max_wait));
            let waiting = (reply, in_flight, deadline);
            reply = Box::pin(wait_for_run(engine, &mut guard, report, &mut ambiguous_since, waiting)).await;
        }
        handle_reply(engine, guard, reply, context, report)
    }
}

/// Checks that the token is known before it is claimed, so that a guessed token leaves no record. A token that expires
/// between the two requests counts as valid.
pub(super) async fn check_token(engine: &Engine, prepared: &Prepared, report: &Report<'_>) -> Result<(), NotAcquired> {
    let sent = engine.clock.now();
    let found = engine.before(|| sent + prepared.policy.lease / 3, engine.store.peek(&prepared.request.key)).await;
    let found = found.unwrap_or_else(|| Err(no_answer("within a third of the lease")));
    report.store_answered("peek", sent, &found);
    match found {
        Ok(Some(_)) => Ok(()),
        Ok(None) => Err(Rejection::UnknownToken.into()),
        Err(error) => {
            report.event(&Event::StoreFailed { step: "peek", error: &error });
            Err(store_failure(engine, error, prepared))
        }
    }
}

/// Turns the store's answer into an attempt, or into the answer to the call.
pub(super) fn handle_reply<'e>(
    engine: &'e Arc<Engine>,
    mut guard: ReleaseOnDrop<'e>,
    reply: ClaimReply,
    context: &TaskContext,
    report: &mut Report<'e>,
) -> Result<Attempt<'e>, NotAcquired> {
    match reply.answer {
        Ok(Claim::Acquired(grant)) => {
            let mut grant = guard.prepared.without_issue(grant);
            grant.attempt = grant.attempt.max(guard.prepared.delivery_attempt.map_or(0, NonZeroU32::get));
            guard.granted(grant.fencing);
            // The observer may take its time, so the clock is read after the event.
            report.record_grant(&grant);
            let now = engine.clock.now();
            let lease = new_lease(engine, &guard.prepared, grant, context, report, (reply.sent, now));
            let attempt = Attempt::new(engine, lease, guard, now);
            // From here on, equal calls find the run.
            drop(reply.pending);
            Ok(attempt)
        }
        answer => {
            if let Ok(Claim::Consumed(consumed)) = &answer {
                report.event(&Event::FoundConsumed { fencing: consumed.fencing });
            }
            // The guard releases a copy of the claim that may still be applied. Without such a copy, there is nothing
            // to release.
            if !reply.is_ambiguous {
                guard.disarm();
            }
            let prepared = &guard.prepared;
            Err(match answer {
                Ok(Claim::Consumed(_)) if prepared.refuses_duplicates() => NotAcquired::Duplicate(prepared.clone()),
                Ok(other) => not_granted(engine, other, prepared),
                Err(error) => store_failure(engine, error, prepared),
            })
        }
    }
}

/// Creates the lease of a grant, counted from the instant at which the claim was sent.
fn new_lease(
    engine: &Engine,
    prepared: &Prepared,
    grant: Grant,
    context: &TaskContext,
    report: &Report<'_>,
    timestamps: (Instant, Instant),
) -> Lease {
    let held = ClaimHandle::granted(&prepared.request, &grant);
    let policy = &prepared.policy;
    let step_retention = policy.max_run.saturating_add(policy.lease).saturating_add(policy.retain_failures);
    let renews = prepared.transaction_store.as_ref().is_none_or(|own| own.renews());
    let timing = LeaseTiming {
        heartbeat: policy.heartbeat(),
        max_run: policy.max_run,
        step_retention,
        renews,
        in_transaction: prepared.transaction_store.is_some(),
    };
    let services = (engine.clock.clone(), engine.store.clone());
    Lease::new(held, grant, report.handler_name(), context.lease.clone(), services, timestamps, timing)
}

/// Sends a claim, and retries with the same owner token if the answer may be lost.
///
/// `ambiguous_since` is the time at which the first copy with an unknown result was sent, over all calls for this
/// delivery. Whichever copy is answered, that first copy may be the granted one, so the lease counts from its time.
pub(super) fn send_claim(
    engine: &Engine,
    prepared: &Prepared,
    report: &Report<'_>,
    ambiguous_since: &mut Option<Instant>,
    deadline: Option<Instant>,
    began: Instant,
) -> impl Future<Output = ClaimReply> {
    // A repeated claim may have been granted, so only the store can answer it.
    match prepared.in_flight_keys(engine).filter(|_| ambiguous_since.is_none()) {
        Some(keys) => {
            Either::Left(Box::pin(claim_once(engine, keys, prepared, report, ambiguous_since, (deadline, began))))
        }
        None => Either::Right(ask_store(engine, prepared, report, ambiguous_since, deadline, began)),
    }
}

/// Answers a call whose key is known to be in flight, and otherwise sends its claim. If another call has sent a claim of
/// this key, waits for the answer first, for at most the interval between claims.
async fn claim_once(
    engine: &Engine,
    keys: &Arc<InFlightKeys>,
    prepared: &Prepared,
    report: &Report<'_>,
    ambiguous_since: &mut Option<Instant>,
    (deadline, mut began): (Option<Instant>, Instant),
) -> ClaimReply {
    let request = &prepared.request;
    let mut found = keys.look_up(request, began);
    if let KeyLookup::Claimed(answered) = found {
        let until = later(began, keys.interval());
        tokio::select! {
            biased;
            () = answered => {}
            () = engine.clock.sleep_until(deadline.map_or(until, |deadline| deadline.min(until))) => {}
        }
        began = engine.clock.now();
        found = keys.look_up(request, began);
    }
    let pending = match found {
        KeyLookup::InFlight(known) => {
            report.claim_exempt();
            return ClaimReply::known(began, &known);
        }
        KeyLookup::Claimed(_) => None,
        KeyLookup::Ask(pending) => pending,
    };
    let reply = ask_store(engine, prepared, report, ambiguous_since, deadline, began).await;
    reply.noted(pending, request, engine.clock.now())
}

/// Sends a claim to the store, with the retries of [`send_claim`].
fn ask_store(
    engine: &Engine,
    prepared: &Prepared,
    report: &Report<'_>,
    ambiguous_since: &mut Option<Instant>,
    deadline: Option<Instant>,
    began: Instant,
) -> impl Future<Output = ClaimReply> {
    async move {
        let until = || claim_deadline(prepared, deadline, began);
        let answer = engine.before(until, prepared.store(engine).claim(&prepared.request)).await;
        match answered(report, began, answer) {
            answer @ (Err(_) | Ok(Claim::InFlight(InFlight::Busy))) => {
                Box::pin(retry_claim(engine, prepared, report, ambiguous_since, deadline, (began, answer))).await
            }
            answer => ClaimReply::new(ambiguous_since.unwrap_or(began), ambiguous_since.is_some(), answer),
        }
    }
}

/// Returns the latest instant at which an answer to a claim is useful.
fn claim_deadline(prepared: &Prepared, deadline: Option<Instant>, sent: Instant) -> Instant {
    let until = sent + prepared.policy.lease / 3;
    deadline.map_or(until, |deadline| deadline.min(until))
}

/// Reports the answer to a claim.
fn answered(
    report: &Report<'_>,
    sent: Instant,
    answer: Option<Result<Claim, StoreError>>,
) -> Result<Claim, StoreError> {
    let answer = answer.unwrap_or_else(|| Err(no_answer("within a third of the lease")));
    report.store_answered("claim", sent, &answer);
    answer
}

/// Retries a claim whose first try had no usable answer.
async fn retry_claim(
    engine: &Engine,
    prepared: &Prepared,
    report: &Report<'_>,
    ambiguous_since: &mut Option<Instant>,
    deadline: Option<Instant>,
    (began, mut answer): (Instant, Result<Claim, StoreError>),
) -> ClaimReply {
    let (mut sent, mut pauses) = (began, RETRY_PAUSES.into_iter());
    let patience = prepared.policy.lease / 3;
    loop {
        let is_retryable = match &answer {
            Err(error) => {
                report.event(&Event::StoreFailed { step: "claim", error });
                if error.kind() == StoreErrorKind::Ambiguous {
                    ambiguous_since.get_or_insert(sent);
                }
                error.is_worth_a_retry()
            }
            // The claim may have met its own first copy, or another short-lived claim.
            Ok(Claim::InFlight(InFlight::Busy)) => true,
            Ok(_) => false,
        };
        // After two thirds of the lease, a grant would be useless.
        let now = engine.clock.now();
        let late = now.saturating_duration_since(began) >= patience * 2 || deadline.is_some_and(|end| end <= now);
        match pauses.next() {
            Some(rest) if is_retryable && !late => pause(&*engine.clock, rest).await,
            _ => {
                // A late copy of an earlier try may have been granted before the last one was sent.
                return ClaimReply::new(ambiguous_since.unwrap_or(began), ambiguous_since.is_some(), answer);
            }
        }
        sent = engine.clock.now();
        let until = || claim_deadline(prepared, deadline, sent);
        let reply = engine.before(until, prepared.store(engine).claim(&prepared.request)).await;
        answer = answered(report, sent, reply);
    }
}

/// Waits until `deadline` for the run in flight to end, and sends the claim again after each notification.
async fn wait_for_run(
    engine: &Engine,
    guard: &mut ReleaseOnDrop<'_>,
    report: &Report<'_>,
    ambiguous_since: &mut Option<Instant>,
    (mut reply, mut in_flight, deadline): (ClaimReply, InFlight, Instant),
) -> ClaimReply {
    // The call is deferred if too many calls wait already.
    let Ok(_place) = engine.wait_permits.try_acquire() else { return reply };
    // A nested run may continue for as long as its outer run.
    let phase = if guard.prepared.is_nested { DrainPhase::GraceEnded } else { DrainPhase::Draining };
    loop {
        if ambiguous_since.is_none()
            && guard.prepared.in_flight_keys(engine).is_some()
            && let Some((known, settled)) = engine.watch_known(&guard.prepared.request)
        {
            report.claim_exempt();
            reply = ClaimReply::known(engine.clock.now(), &known);
            in_flight = known.in_flight;
            if engine.clock.now() >= deadline || engine.drain.has_reached(phase) {
                return reply;
            }
            engine.wait_for_known((known, settled), deadline, phase).await;
            continue;
        }
        // Watching starts before the next claim, so that no settlement in between is missed.
        let settled = engine.watch(&guard.prepared.request.key);
        // A late copy of an answered claim may be granted during the wait. The next claim must not take that old grant for its own.
        if ambiguous_since.is_none()
            && let Ok(owner) = engine.new_owner()
        {
            guard.claims_as(owner);
        }
        reply = send_claim(engine, &guard.prepared, report, ambiguous_since, Some(deadline), engine.clock.now()).await;
        let is_over = engine.clock.now() >= deadline || engine.drain.has_reached(phase);
        match &reply.answer {
            Ok(Claim::InFlight(still)) => in_flight = *still,
            // No answer in the remaining time: the last known state is "in flight".
            Err(error) if is_over && error.is_worth_a_retry() => reply.answer = Ok(Claim::InFlight(in_flight)),
            _ => return reply,
        }
        if is_over {
            return reply;
        }
        if reply.is_known {
            // The answer may be older than the watch, which then misses the settlement.
            continue;
        }
        if engine.wait_for_settlement(settled, in_flight, deadline, phase).await {
            engine.forget_answer(&guard.prepared.request.key);
        }
    }
}

/// Waits until the ordering admits the call. Returns the instant from which its lease counts.
pub(super) async fn await_turn(
    engine: &Arc<Engine>,
    prepared: &Prepared,
    report: &Report<'_>,
    may_wait: bool,
) -> Result<Instant, NotAcquired> {
    match prepared.ordering.as_deref() {
        Some(ResolvedOrdering::After(call)) => after::await_turn(engine, prepared, call, report, may_wait).await?,
        Some(ResolvedOrdering::Sequence(position)) => {
            return sequence::await_turn(engine, prepared, position, report, may_wait).await;
        }
        None => {}
    }
    Ok(engine.clock.now())
}
