//! Whose turn it is in a stream: a call that is a number of one looks at the stream's order table, and is let in.
//!
//! The table ([`OrderTable`]) is replaced as a whole by whoever saw it as it is, so each step is one step. That a number is
//! consumed is said by its key's record: the flip itself lets the next one run. Before its claim a call is *let in*: from
//! there on all smaller numbers are over, and nobody else is let in while it may run, which is said by its key's record,
//! and until that is there by a time in the table. Wherever a process is killed, the broker delivers again:
//! - before it is let in: what the table says of it, that it waits and since when, is as true as before;
//! - let in, and not claimed: the next delivery is let in again, others wait for it, and a late one or one that skips it no
//!   longer than a lease;
//! - while it runs: its lease ends, and it is missing from there on, until the next delivery takes over;
//! - between the flip and the note that it is over: the next number looks at its record, as long as that is retained;
//! - buried, and not let in: the next delivery finds it dead, and lets it in.
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::admission::{Admission, admission};
use super::encoding::{pack, unpack};
use super::order_table::{Admitted, OrderTable, Precedence, WaitTimes, keep};
use super::position::SequencePosition;
use super::predecessor_record::{apply_admission, noted_until, seen};
use super::wait_marker::{WaitMarker, waited};
use super::{BrokenOrder, OnLate};
use crate::clock::later;
use crate::engine::{DrainPhase, Engine, no_answer};
use crate::policy::OnInFlight;
use crate::run::{After, Attempt, NotAcquired, Prepared, Report, refused};
use crate::{
    Event, InFlight, Key, Lined, Micros, Order, PolicyError, Record, Rejection, State, StateKind, StoreError,
    StoreErrorKind, Watching,
};

/// So many times in a row others may be faster.
pub(super) const MAX_CONTENTION: usize = 64;

/// What a look has shown.
struct TableSnapshot {
    line: OrderTable,
    bytes: Option<Arc<[u8]>>,
    now: Micros,
    turn: Admission,
    waited: Duration,
    /// When it was delivered before.
    noted: Option<WaitMarker>,
    /// What it has waited counts from now on.
    anew: bool,
    /// Whose end lets it go on, where that has a name.
    behind: Option<Key>,
    /// Its own key is settled: the claim has an answer.
    settled: bool,
}

/// What a number waits for.
struct PredecessorStatus {
    state: StateKind,
    waited: Duration,
    anew: bool,
    /// Whose end lets it go on, where that has a name.
    behind: Option<Key>,
}

pub(crate) async fn in_line(
    engine: &Arc<Engine>,
    prepared: &Prepared,
    place: &SequencePosition,
    report: &Report<'_>,
    waits: bool,
) -> Result<Instant, NotAcquired> {
    let order = engine.store.abilities().order.ok_or_else(|| PolicyError::no_order(&engine.store))?;
    let most = match prepared.terms.on_in_flight {
        OnInFlight::Wait(most) if waits => most,
        _ => Duration::ZERO,
    };
    let deadline = later(engine.clock.now(), most);
    // Too many wait already: this one is told to come back.
    let room = (!most.is_zero()).then(|| engine.wait_permits.try_acquire().ok()).flatten();
    let until = if prepared.inside { DrainPhase::Closed } else { DrainPhase::Draining };
    let failed = |error| {
        report.event(&Event::StoreFailed { step: "order", error: &error });
        refused(engine, error, prepared)
    };
    let mut watched: Option<(Key, Watching)> = None;
    let mut faster = 0;
    while faster < MAX_CONTENTION {
        // What is let in now has its lease from here on.
        let began = engine.clock.now();
        let snapshot = snapshot(engine, prepared, place, order).await.map_err(failed)?;
        let over = engine.clock.now() >= deadline || engine.drain.has_reached(until);
        let steps = match snapshot.turn {
            _ if snapshot.settled => {
                if matches!(snapshot.turn, Admission::Halt(why) if why != BrokenOrder::Late) {
                    admit(engine, prepared, place, order, &snapshot).await.map_err(failed)?;
                }
                return Ok(began);
            }
            Admission::Run | Admission::Skip(_) => admit(engine, prepared, place, order, &snapshot).await,
            Admission::Wait | Admission::Hold(_) => note_waiting(engine, prepared, place, order, &snapshot).await,
            Admission::Halt(_) => Ok(true),
        };
        if !steps.map_err(failed)? {
            faster += 1;
            continue;
        }
        if matches!(snapshot.turn, Admission::Wait | Admission::Hold(_)) && room.is_some() && !over {
            let behind = snapshot.behind.as_ref().unwrap_or(&prepared.request.key);
            // Watching began before the look that found it waiting: nothing was settled unseen in between.
            if let Some((_, settled)) = watched.take_if(|(key, _)| key == behind) {
                let rest = deadline.saturating_duration_since(engine.clock.now());
                let named = snapshot.behind.is_some();
                let rest = if named { InFlight::Leased { rest } } else { InFlight::Busy };
                engine.settled(settled, rest, noted_until(engine, prepared, deadline), until).await;
            }
            watched = Some((behind.clone(), engine.watch(behind)));
            continue;
        }
        return match apply_admission(engine, prepared, report, snapshot.turn, snapshot.waited).await {
            Ok(()) => Ok(began),
            Err(turned) => {
                if let (Admission::Halt(why), NotAcquired::Away(Rejection::Dead { .. })) = (snapshot.turn, &turned)
                    && why != BrokenOrder::Late
                {
                    // If it is not noted now, the next delivery does.
                    let _ = admit(engine, prepared, place, order, &snapshot).await;
                }
                Err(turned)
            }
        };
    }
    Err(failed(contention_error()))
}

async fn snapshot(
    engine: &Arc<Engine>,
    prepared: &Prepared,
    place: &SequencePosition,
    order: &dyn Order,
) -> Result<TableSnapshot, StoreError> {
    let Lined { line: bytes, now } = engine.in_time(prepared.terms.lease / 3, order.line(&place.stream)).await?;
    let line = bytes.as_deref().map(unpack).transpose()?.unwrap_or_default();
    let (own, number) = (&prepared.request.key, place.number);
    let noted = line.seen(number).map(|WaitTimes { first, last }| WaitMarker { first, last, now });
    let PredecessorStatus { state, waited, anew, mut behind } =
        missed_in_line(engine, prepared, &line, number, noted, now).await?;
    let late = line.is_late(number, own);
    let mut turn = match (late, prepared.terms.on_late) {
        (false, _) => admission(state, waited, prepared.terms.on_broken_order),
        (true, OnLate::Run) => Admission::Skip(BrokenOrder::Late),
        (true, OnLate::Refuse) => Admission::Halt(BrokenOrder::Late),
    };
    let again = line.last.as_ref().is_some_and(|last| last.number == number);
    let settled = (late || again || turn != Admission::Run) && is_settled(engine, prepared, own).await?;
    if let (Admission::Run | Admission::Skip(_), Some(inside), false) = (turn, &line.inside, settled)
        && inside.key != *own
        && may_run(engine, prepared, inside, now).await?
    {
        (turn, behind) = (Admission::Wait, Some(inside.key.clone()));
    }
    Ok(TableSnapshot { line, bytes, now, turn, waited, noted, anew, behind, settled })
}

/// A duplicate of what is settled gets its answer, whatever has become of its predecessor.
async fn is_settled(engine: &Arc<Engine>, prepared: &Prepared, own: &Key) -> Result<bool, StoreError> {
    let found = seen(engine, prepared, own).await?.0.map(|record| record.state.kind());
    Ok(matches!(found, Some(StateKind::Consumed | StateKind::Failed | StateKind::Dead)))
}

/// What a number waits for, and for how long it has missed that.
async fn missed_in_line(
    engine: &Arc<Engine>,
    prepared: &Prepared,
    line: &OrderTable,
    number: u64,
    noted: Option<WaitMarker>,
    now: Micros,
) -> Result<PredecessorStatus, StoreError> {
    let patience = prepared.terms.on_broken_order.patience();
    let missed = |(state, sign): (StateKind, Option<Micros>), behind| {
        let (waited, anew) = match (state, noted, sign) {
            (StateKind::Absent, Some(own), Some(sign)) => own.overdue(sign, patience),
            _ => (waited(noted, sign.unwrap_or_default()), false),
        };
        PredecessorStatus { state, waited, anew, behind }
    };
    let seen = match line.before(number) {
        Precedence::Nothing => return Ok(missed((StateKind::Consumed, None), None)),
        Precedence::LastAdmitted(key) => return Ok(missed(sign_of(engine, prepared, line, &key).await?, Some(key))),
        Precedence::Expected(seen) => seen,
    };
    let there = seen.map(|last| WaitMarker { first: last, last, now }.until(patience));
    let all = missed((StateKind::Absent, there), None);
    // Those are missing. But the one that was let in before them may come again.
    let last = line.last.as_ref().filter(|last| all.waited >= patience && !last.done);
    let Some(last) = last else { return Ok(all) };
    let (state, sign) = sign_of(engine, prepared, line, &last.key).await?;
    Ok(match state {
        StateKind::Consuming | StateKind::Vacant => missed((state, sign), Some(last.key.clone())),
        _ => missed((StateKind::Absent, there.max(sign)), None),
    })
}

/// What has become of the one that was let in last, and when there was a sign of it.
async fn sign_of(
    engine: &Arc<Engine>,
    prepared: &Prepared,
    line: &OrderTable,
    key: &Key,
) -> Result<(StateKind, Option<Micros>), StoreError> {
    let (found, now) = seen(engine, prepared, key).await?;
    Ok(match found {
        // A run whose lease is over was killed: it is missing since then.
        Some(Record { state: State::Consuming { until, .. }, .. }) if until <= now => (StateKind::Absent, Some(until)),
        Some(record) => (record.state.kind(), Some(record.updated_at)),
        // It was about to claim.
        None => {
            let inside = line.inside.as_ref().filter(|inside| inside.key == *key);
            (StateKind::Absent, inside.map(|inside| inside.until))
        }
    })
}

/// `lined`: when the line was read, by the store's clock, which a record that is not there does not tell.
async fn may_run(
    engine: &Arc<Engine>,
    prepared: &Prepared,
    inside: &Admitted,
    lined: Micros,
) -> Result<bool, StoreError> {
    let (found, now) = seen(engine, prepared, &inside.key).await?;
    let now = if found.is_some() { now } else { lined };
    Ok(inside.may_run(found.as_ref().map(|record| &record.state), now))
}

/// Whether nobody was faster. What has its own store claims where nobody sees it, as long as it runs.
async fn admit(
    engine: &Arc<Engine>,
    prepared: &Prepared,
    place: &SequencePosition,
    order: &dyn Order,
    snapshot: &TableSnapshot,
) -> Result<bool, StoreError> {
    let terms = &prepared.terms;
    let unseen = match (&prepared.via, snapshot.turn) {
        (_, Admission::Halt(_)) => Duration::ZERO,
        (Some(_), _) => terms.max_run.saturating_add(terms.lease),
        (None, _) => terms.lease,
    };
    let mut next = snapshot.line.clone();
    next.enter(place.number, &prepared.request.key, snapshot.now + unseen);
    let left = pack(&next).into_boxed_slice();
    let done = redraw(engine, prepared, place, order, snapshot.bytes.as_deref(), &left).await?;
    if done {
        let _ = place.left.set(left);
    }
    Ok(done)
}

/// Likewise. In a line that is full it waits without a note: it is in order behind what is there.
async fn note_waiting(
    engine: &Arc<Engine>,
    prepared: &Prepared,
    place: &SequencePosition,
    order: &dyn Order,
    snapshot: &TableSnapshot,
) -> Result<bool, StoreError> {
    let patience = prepared.terms.on_broken_order.patience();
    if !snapshot.anew && snapshot.noted.is_some_and(|noted| !noted.is_stale(patience)) {
        return Ok(true);
    }
    let mut next = snapshot.line.clone();
    if next.see(place.number, snapshot.now, snapshot.anew).is_err() || next == snapshot.line {
        return Ok(true);
    }
    redraw(engine, prepared, place, order, snapshot.bytes.as_deref(), &pack(&next)).await
}

async fn redraw(
    engine: &Arc<Engine>,
    prepared: &Prepared,
    place: &SequencePosition,
    order: &dyn Order,
    seen: Option<&[u8]>,
    next: &[u8],
) -> Result<bool, StoreError> {
    let terms = &prepared.terms;
    let keep = keep(terms.retain, terms.memory, terms.on_broken_order.patience());
    engine.in_time(terms.lease / 3, order.redraw(&place.stream, seen, next, keep)).await
}

/// Notes in the stream's table that the number of this run is consumed, so that the next call need not look at its record.
/// The record says the same, so a failed note costs nothing before the record expires.
pub(crate) async fn note_consumed(attempt: &Attempt<'_>, report: &Report<'_>) {
    let Some(After::Line(position)) = attempt.prepared.comes.as_deref() else { return };
    let engine = attempt.engine;
    let until = attempt.answers_at(engine.clock.now());
    let noted = engine.before(until, over(engine, &attempt.prepared, position)).await;
    if let Err(error) = noted.unwrap_or_else(|| Err(no_answer("in time"))) {
        report.event(&Event::StoreFailed { step: "order", error: &error });
    }
}

async fn over(engine: &Arc<Engine>, prepared: &Prepared, place: &SequencePosition) -> Result<(), StoreError> {
    let Some(order) = engine.store.abilities().order else { return Ok(()) };
    let mut seen: Option<Arc<[u8]>> = place.left.get().map(|left| left[..].into());
    for _ in 0..MAX_CONTENTION {
        let Some(bytes) = seen else { return Ok(()) };
        let mut line = unpack(&bytes)?;
        if !line.done(place.number, &prepared.request.key)
            || redraw(engine, prepared, place, order, Some(&bytes), &pack(&line)).await?
        {
            return Ok(());
        }
        seen = engine.in_time(prepared.terms.lease / 3, order.line(&place.stream)).await?.line;
    }
    Err(contention_error())
}

pub(super) fn contention_error() -> StoreError {
    StoreError::new(StoreErrorKind::NotApplied)
        .because(format!("{MAX_CONTENTION} times in a row somebody else changed the stream's order table; try again"))
}
