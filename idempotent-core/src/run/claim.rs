//! The claim: ask the store for the key, and ask again if the answer may be lost.
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::attempt::Attempt;
use super::not_acquired::{NotAcquired, refused, turned};
use super::prepared::{After, Prepared};
use super::release_on_drop::ReleaseOnDrop;
use super::report::Report;
use crate::clock::{later, pause};
use crate::context::TaskContext;
use crate::engine::{DrainPhase, Engine, no_answer};
use crate::lease::LeaseTiming;
use crate::ordering::{after, sequence};
use crate::policy::OnInFlight;
use crate::{Claim, Event, Grant, InFlight, Lease, Rejection, StoreError, StoreErrorKind};

/// A store's answer to a claim.
pub(super) struct ClaimReply {
    /// No later than the grant's lease began, if one was granted.
    pub(super) sent: Instant,
    /// Whether a copy of the claim was sent whose fate is unknown.
    pub(super) unheard: bool,
    pub(super) answer: Result<Claim, StoreError>,
}

/// Re-asked this often at the least where the store does not answer; by the same token, so no second grant can
/// come of it.
const ASKED_AGAIN: [Duration; 3] = [Duration::from_millis(10), Duration::from_millis(20), Duration::from_millis(40)];

pub(super) async fn claim<'e>(
    engine: &'e Arc<Engine>,
    prepared: Box<Prepared>,
    frame: &TaskContext,
    report: &mut Report<'e>,
) -> Result<Attempt<'e>, NotAcquired> {
    let mut began = report.began();
    if prepared.issued {
        Box::pin(issued(engine, &prepared, report)).await?;
        began = engine.clock.now();
    }
    if prepared.comes.is_some() {
        began = Box::pin(await_turn(engine, &prepared, report, true)).await?;
    }
    // On guard before the claim is sent: a drop while the answer is under way takes it back.
    let guard = ReleaseOnDrop::new(engine, &prepared);
    let mut unheard = None;
    // Nothing but pure steps lies between `began` and this.
    let mut asked = ask(engine, &prepared, report, &mut unheard, None, began).await;
    if let (OnInFlight::Wait(most), Ok(Claim::InFlight(in_flight))) = (prepared.terms.on_in_flight, &asked.answer) {
        let (in_flight, deadline) = (*in_flight, later(engine.clock.now(), most));
        asked = Box::pin(wait(engine, &prepared, report, &mut unheard, (asked, in_flight), deadline)).await;
    }
    granted(engine, prepared, guard, asked, frame, report)
}

/// Looks whether the token is known before it is claimed: a guess must leave no record behind. One that runs out
/// between the two was good when it came.
pub(super) async fn issued(engine: &Engine, prepared: &Prepared, report: &Report<'_>) -> Result<(), NotAcquired> {
    let until = engine.clock.now() + prepared.terms.lease / 3;
    let found = engine.before(until, engine.store.peek(&prepared.request.key)).await;
    match found.unwrap_or_else(|| Err(no_answer("within a third of the lease"))) {
        Ok(Some(_)) => Ok(()),
        Ok(None) => Err(Rejection::UnknownToken.into()),
        Err(error) => {
            report.event(&Event::StoreFailed { step: "peek", error: &error });
            Err(refused(engine, error, prepared))
        }
    }
}

/// What follows from the store's answer.
pub(super) fn granted<'e>(
    engine: &'e Arc<Engine>,
    prepared: Box<Prepared>,
    mut guard: ReleaseOnDrop<'e>,
    asked: ClaimReply,
    frame: &TaskContext,
    report: &mut Report<'e>,
) -> Result<Attempt<'e>, NotAcquired> {
    match asked.answer {
        Ok(Claim::Acquired(mut grant)) => {
            // The first attempt of a token was its issue.
            grant.attempt -= u32::from(prepared.issued && grant.attempt > 1);
            grant.attempt = grant.attempt.max(prepared.marked.unwrap_or_default());
            guard.granted(grant.fencing);
            // An observer is told, and may take its time: the clock is read when it has.
            report.granted(&grant);
            let now = engine.clock.now();
            let lease = lease(engine, &prepared, grant, frame, report, (asked.sent, now));
            Ok(Attempt::new(engine, prepared, lease, guard, now))
        }
        answer => {
            // A copy that may yet be applied is taken back as the guard goes; else there is nothing to free.
            if !asked.unheard {
                guard.disarm();
            }
            Err(match answer {
                Ok(Claim::Consumed(_)) if prepared.refuses_duplicates() => NotAcquired::Duplicate(prepared),
                Ok(other) => turned(engine, other, &prepared),
                Err(error) => refused(engine, error, &prepared),
            })
        }
    }
}

/// Makes the grant a lease: only here it is known when the claim was sent.
fn lease(
    engine: &Engine,
    prepared: &Prepared,
    grant: Grant,
    frame: &TaskContext,
    report: &Report<'_>,
    trip: (Instant, Instant),
) -> Lease {
    let held = prepared.held(Some(grant.fencing));
    let terms = &prepared.terms;
    let keep = terms.max_run.saturating_add(terms.lease).saturating_add(terms.memory);
    let renews = prepared.via.as_ref().is_none_or(|own| own.renews());
    let span = LeaseTiming {
        heartbeat: terms.heartbeat(),
        max_run: terms.max_run,
        keep,
        renews,
        transaction: prepared.via.is_some(),
    };
    let with = (engine.clock.clone(), engine.store.clone());
    Lease::new(held, grant, report.names(), frame.lease.clone(), with, trip, &span)
}

/// Asks, and asks again by the same token where the answer may have got lost.
///
/// `unheard` is when the first copy of this claim went out whose fate is unknown; it is remembered over all
/// askings. That copy may be the one that was granted, whichever is answered, and then its lease began no
/// later: a grant counts from there.
pub(super) async fn ask(
    engine: &Engine,
    prepared: &Prepared,
    report: &Report<'_>,
    unheard: &mut Option<Instant>,
    deadline: Option<Instant>,
    began: Instant,
) -> ClaimReply {
    match ask_once(engine, prepared, deadline, began).await {
        answer @ (Err(_) | Ok(Claim::InFlight(InFlight::Busy))) => {
            Box::pin(ask_again(engine, prepared, report, unheard, deadline, (began, answer))).await
        }
        answer => ClaimReply { sent: unheard.unwrap_or(began), unheard: unheard.is_some(), answer },
    }
}

async fn ask_once(
    engine: &Engine,
    prepared: &Prepared,
    deadline: Option<Instant>,
    sent: Instant,
) -> Result<Claim, StoreError> {
    let until = sent + prepared.terms.lease / 3;
    let until = deadline.map_or(until, |deadline| deadline.min(until));
    let answer = engine.before(until, prepared.store(engine).claim(&prepared.request)).await;
    answer.unwrap_or_else(|| Err(no_answer("within a third of the lease")))
}

/// What follows from a first answer that is none.
async fn ask_again(
    engine: &Engine,
    prepared: &Prepared,
    report: &Report<'_>,
    unheard: &mut Option<Instant>,
    deadline: Option<Instant>,
    (began, mut answer): (Instant, Result<Claim, StoreError>),
) -> ClaimReply {
    let (mut sent, mut pauses) = (began, ASKED_AGAIN.into_iter());
    let patience = prepared.terms.lease / 3;
    loop {
        let again = match &answer {
            Err(error) => {
                report.event(&Event::StoreFailed { step: "claim", error });
                if error.kind() == StoreErrorKind::Ambiguous {
                    unheard.get_or_insert(sent);
                }
                error.is_worth_a_retry()
            }
            // It may have met its own first copy, or a claim that is over in a moment.
            Ok(Claim::InFlight(InFlight::Busy)) => true,
            Ok(_) => false,
        };
        // Past two thirds of the lease a grant would be of no use.
        let now = engine.clock.now();
        let late = now.saturating_duration_since(began) >= patience * 2 || deadline.is_some_and(|end| end <= now);
        match pauses.next() {
            Some(rest) if again && !late => pause(&*engine.clock, rest).await,
            _ => return ClaimReply { sent: unheard.unwrap_or(sent), unheard: unheard.is_some(), answer },
        }
        sent = engine.clock.now();
        answer = ask_once(engine, prepared, deadline, sent).await;
    }
}

/// Waits for the run in flight to end, and asks again, until `deadline`.
async fn wait(
    engine: &Engine,
    prepared: &Prepared,
    report: &Report<'_>,
    unheard: &mut Option<Instant>,
    (mut asked, mut in_flight): (ClaimReply, InFlight),
    deadline: Instant,
) -> ClaimReply {
    // Too many wait already: this one is told to come back.
    let Ok(_place) = engine.wait_permits.try_acquire() else { return asked };
    // A run inside another may go on for as long as that one may.
    let until = if prepared.inside { DrainPhase::Closed } else { DrainPhase::Draining };
    loop {
        // Watching begins before the store is asked again: nothing can be settled unseen in between.
        let settled = engine.watch(&prepared.request.key);
        asked = ask(engine, prepared, report, unheard, Some(deadline), engine.clock.now()).await;
        let over = engine.clock.now() >= deadline || engine.drain.has_reached(until);
        match &asked.answer {
            Ok(Claim::InFlight(still)) => in_flight = *still,
            // No answer in the time that was left: it was in flight when last heard of.
            Err(error) if over && error.is_worth_a_retry() => asked.answer = Ok(Claim::InFlight(in_flight)),
            _ => return asked,
        }
        if over {
            return asked;
        }
        engine.settled(settled, in_flight, deadline, until).await;
    }
}

/// Waits for the call's turn. Returns the instant from which its lease counts.
pub(super) async fn await_turn(
    engine: &Arc<Engine>,
    prepared: &Prepared,
    report: &Report<'_>,
    waits: bool,
) -> Result<Instant, NotAcquired> {
    match prepared.comes.as_deref() {
        Some(After::Call(call)) => after::await_predecessor(engine, prepared, call, report, waits).await?,
        Some(After::Line(position)) => {
            return sequence::await_admission(engine, prepared, position, report, waits).await;
        }
        None => {}
    }
    Ok(engine.clock.now())
}
