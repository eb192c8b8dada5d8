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

use super::admission::{Admission, decide_admission};
use super::encoding::{decode, encode};
use super::order_table::{Admitted, OrderTable, Precedence, WaitTimes, table_retention};
use super::position::SequencePosition;
use super::predecessor_record::{apply_admission, read_record, recheck_deadline};
use super::wait_marker::{WaitMarker, waited};
use super::{BrokenOrder, OnLate};
use crate::clock::later;
use crate::engine::{DrainPhase, Engine, no_answer};
use crate::policy::OnInFlight;
use crate::run::{Attempt, NotAcquired, Prepared, Report, ResolvedOrdering, store_failure};
use crate::{
    Event, InFlight, Key, Lined, Micros, Order, PolicyError, Record, Rejection, State, StateKind, StoreError,
    StoreErrorKind, Watching,
};

/// So many times in a row others may be faster.
pub(super) const MAX_CONTENTION: usize = 64;

/// What a look has shown.
struct TableSnapshot {
    table: OrderTable,
    bytes: Option<Arc<[u8]>>,
    now: Micros,
    admission: Admission,
    waited: Duration,
    /// When it was delivered before.
    marker: Option<WaitMarker>,
    /// What it has waited counts from now on.
    restart: bool,
    /// Whose end lets it go on, where that has a name.
    blocker: Option<Key>,
    /// Its own key is settled: the claim has an answer.
    is_settled: bool,
}

/// What a number waits for.
struct PredecessorStatus {
    state: StateKind,
    waited: Duration,
    restart: bool,
    /// Whose end lets it go on, where that has a name.
    blocker: Option<Key>,
}

pub(crate) async fn await_turn(
    engine: &Arc<Engine>,
    prepared: &Prepared,
    position: &SequencePosition,
    report: &Report<'_>,
    may_wait: bool,
) -> Result<Instant, NotAcquired> {
    let order = engine.store.abilities().order.ok_or_else(|| PolicyError::no_order(&engine.store))?;
    let max_wait = match prepared.policy.on_in_flight {
        OnInFlight::Wait(max_wait) if may_wait => max_wait,
        _ => Duration::ZERO,
    };
    let deadline = later(engine.clock.now(), max_wait);
    // Too many wait already: this one is told to come back.
    let permit = (!max_wait.is_zero()).then(|| engine.wait_permits.try_acquire().ok()).flatten();
    let phase = if prepared.is_nested { DrainPhase::GraceEnded } else { DrainPhase::Draining };
    let failed = |error| {
        report.event(&Event::StoreFailed { step: "order", error: &error });
        store_failure(engine, error, prepared)
    };
    let mut watched: Option<(Key, Watching)> = None;
    let mut conflicts = 0;
    while conflicts < MAX_CONTENTION {
        // What is let in now has its lease from here on.
        let began = engine.clock.now();
        let snapshot = load_snapshot(engine, prepared, position, order).await.map_err(failed)?;
        let is_over = engine.clock.now() >= deadline || engine.drain.has_reached(phase);
        let steps = match snapshot.admission {
            _ if snapshot.is_settled => {
                if matches!(snapshot.admission, Admission::Halt(why) if why != BrokenOrder::Late) {
                    admit(engine, prepared, position, order, &snapshot).await.map_err(failed)?;
                }
                return Ok(began);
            }
            Admission::Run | Admission::Skip(_) => admit(engine, prepared, position, order, &snapshot).await,
            Admission::Wait | Admission::Hold(_) => note_waiting(engine, prepared, position, order, &snapshot).await,
            Admission::Halt(_) => Ok(true),
        };
        if !steps.map_err(failed)? {
            conflicts += 1;
            continue;
        }
        if matches!(snapshot.admission, Admission::Wait | Admission::Hold(_)) && permit.is_some() && !is_over {
            let blocker = snapshot.blocker.as_ref().unwrap_or(&prepared.request.key);
            // Watching began before the look that found it waiting: nothing was settled unseen in between.
            if let Some((_, settled)) = watched.take_if(|(key, _)| key == blocker) {
                let rest = deadline.saturating_duration_since(engine.clock.now());
                let named = snapshot.blocker.is_some();
                let rest = if named { InFlight::Leased { rest } } else { InFlight::Busy };
                engine.wait_for_settlement(settled, rest, recheck_deadline(engine, prepared, deadline), phase).await;
            }
            watched = Some((blocker.clone(), engine.watch(blocker)));
            continue;
        }
        return match apply_admission(engine, prepared, report, snapshot.admission, snapshot.waited).await {
            Ok(()) => Ok(began),
            Err(turned) => {
                if let (Admission::Halt(why), NotAcquired::Rejected(Rejection::Dead { .. })) =
                    (snapshot.admission, &turned)
                    && why != BrokenOrder::Late
                {
                    // If it is not noted now, the next delivery does.
                    let _ = admit(engine, prepared, position, order, &snapshot).await;
                }
                Err(turned)
            }
        };
    }
    Err(failed(contention_error()))
}

async fn load_snapshot(
    engine: &Arc<Engine>,
    prepared: &Prepared,
    position: &SequencePosition,
    order: &dyn Order,
) -> Result<TableSnapshot, StoreError> {
    let Lined { line: bytes, now } =
        engine.with_timeout(prepared.policy.lease / 3, order.line(&position.table_key)).await?;
    let table = bytes.as_deref().map(decode).transpose()?.unwrap_or_default();
    let (own, number) = (&prepared.request.key, position.number);
    let marker = table.wait_times(number).map(|WaitTimes { first, last }| WaitMarker { first, last, now });
    let PredecessorStatus { state, waited, restart, mut blocker } =
        predecessor_status(engine, prepared, &table, number, marker, now).await?;
    let late = table.is_late(number, own);
    let mut admission = match (late, prepared.policy.on_late) {
        (false, _) => decide_admission(state, waited, prepared.policy.on_broken_order),
        (true, OnLate::Run) => Admission::Skip(BrokenOrder::Late),
        (true, OnLate::Refuse) => Admission::Halt(BrokenOrder::Late),
    };
    let again = table.last.as_ref().is_some_and(|last| last.number == number);
    let is_settled = (late || again || admission != Admission::Run) && has_settled(engine, prepared, own).await?;
    if let (Admission::Run | Admission::Skip(_), Some(admitted), false) = (admission, &table.admitted, is_settled)
        && admitted.key != *own
        && may_run(engine, prepared, admitted, now).await?
    {
        (admission, blocker) = (Admission::Wait, Some(admitted.key.clone()));
    }
    Ok(TableSnapshot { table, bytes, now, admission, waited, marker, restart, blocker, is_settled })
}

/// A duplicate of what is settled gets its answer, whatever has become of its predecessor.
async fn has_settled(engine: &Arc<Engine>, prepared: &Prepared, own: &Key) -> Result<bool, StoreError> {
    let found = read_record(engine, prepared, own).await?.0.map(|record| record.state.kind());
    Ok(matches!(found, Some(StateKind::Consumed | StateKind::Failed | StateKind::Dead)))
}

/// What a number waits for, and for how long it has missed that.
async fn predecessor_status(
    engine: &Arc<Engine>,
    prepared: &Prepared,
    table: &OrderTable,
    number: u64,
    marker: Option<WaitMarker>,
    now: Micros,
) -> Result<PredecessorStatus, StoreError> {
    let patience = prepared.policy.on_broken_order.patience();
    let status = |(state, last_sign): (StateKind, Option<Micros>), blocker| {
        let (waited, restart) = match (state, marker, last_sign) {
            (StateKind::Absent, Some(own), Some(last_sign)) => own.overdue(last_sign, patience),
            _ => (waited(marker, last_sign.unwrap_or_default()), false),
        };
        PredecessorStatus { state, waited, restart, blocker }
    };
    let wait_times = match table.precedence(number) {
        Precedence::Nothing => return Ok(status((StateKind::Consumed, None), None)),
        Precedence::LastAdmitted(key) => {
            return Ok(status(last_activity(engine, prepared, table, &key).await?, Some(key)));
        }
        Precedence::Expected(wait_times) => wait_times,
    };
    let there = wait_times.map(|last| WaitMarker { first: last, last, now }.present_until(patience));
    let all = status((StateKind::Absent, there), None);
    // Those are missing. But the one that was let in before them may come again.
    let last = table.last.as_ref().filter(|last| all.waited >= patience && !last.is_consumed);
    let Some(last) = last else { return Ok(all) };
    let (state, last_sign) = last_activity(engine, prepared, table, &last.key).await?;
    Ok(match state {
        StateKind::Consuming | StateKind::Vacant => status((state, last_sign), Some(last.key.clone())),
        _ => status((StateKind::Absent, there.max(last_sign)), None),
    })
}

/// What has become of the one that was let in last, and when there was a sign of it.
async fn last_activity(
    engine: &Arc<Engine>,
    prepared: &Prepared,
    table: &OrderTable,
    key: &Key,
) -> Result<(StateKind, Option<Micros>), StoreError> {
    let (found, now) = read_record(engine, prepared, key).await?;
    Ok(match found {
        // A run whose lease is over was killed: it is missing since then.
        Some(Record { state: State::Consuming { until, .. }, .. }) if until <= now => (StateKind::Absent, Some(until)),
        Some(record) => (record.state.kind(), Some(record.updated_at)),
        // It was about to claim.
        None => {
            let admitted = table.admitted.as_ref().filter(|admitted| admitted.key == *key);
            (StateKind::Absent, admitted.map(|admitted| admitted.until))
        }
    })
}

/// `lined`: when the line was read, by the store's clock, which a record that is not there does not tell.
async fn may_run(
    engine: &Arc<Engine>,
    prepared: &Prepared,
    admitted: &Admitted,
    lined: Micros,
) -> Result<bool, StoreError> {
    let (found, now) = read_record(engine, prepared, &admitted.key).await?;
    let now = if found.is_some() { now } else { lined };
    Ok(admitted.may_run(found.as_ref().map(|record| &record.state), now))
}

/// Whether nobody was faster. What has its own store claims where nobody sees it, as long as it runs.
async fn admit(
    engine: &Arc<Engine>,
    prepared: &Prepared,
    position: &SequencePosition,
    order: &dyn Order,
    snapshot: &TableSnapshot,
) -> Result<bool, StoreError> {
    let policy = &prepared.policy;
    let unseen = match (&prepared.transaction_store, snapshot.admission) {
        (_, Admission::Halt(_)) => Duration::ZERO,
        (Some(_), _) => policy.max_run.saturating_add(policy.lease),
        (None, _) => policy.lease,
    };
    let mut next_table = snapshot.table.clone();
    next_table.admit(position.number, &prepared.request.key, snapshot.now + unseen);
    let encoded = encode(&next_table).into_boxed_slice();
    let swapped = swap_table(engine, prepared, position, order, snapshot.bytes.as_deref(), &encoded).await?;
    if swapped {
        let _ = position.admitted_table.set(encoded);
    }
    Ok(swapped)
}

/// Likewise. In a line that is full it waits without a note: it is in order behind what is there.
async fn note_waiting(
    engine: &Arc<Engine>,
    prepared: &Prepared,
    position: &SequencePosition,
    order: &dyn Order,
    snapshot: &TableSnapshot,
) -> Result<bool, StoreError> {
    let patience = prepared.policy.on_broken_order.patience();
    if !snapshot.restart && snapshot.marker.is_some_and(|marker| !marker.is_stale(patience)) {
        return Ok(true);
    }
    let mut next_table = snapshot.table.clone();
    if next_table.record_wait(position.number, snapshot.now, snapshot.restart).is_err() || next_table == snapshot.table
    {
        return Ok(true);
    }
    swap_table(engine, prepared, position, order, snapshot.bytes.as_deref(), &encode(&next_table)).await
}

async fn swap_table(
    engine: &Arc<Engine>,
    prepared: &Prepared,
    position: &SequencePosition,
    order: &dyn Order,
    expected: Option<&[u8]>,
    next_table: &[u8],
) -> Result<bool, StoreError> {
    let policy = &prepared.policy;
    let retention = table_retention(policy.retain, policy.memory, policy.on_broken_order.patience());
    engine.with_timeout(policy.lease / 3, order.redraw(&position.table_key, expected, next_table, retention)).await
}

/// Notes in the stream's table that the number of this run is consumed, so that the next call need not look at its record.
/// The record says the same, so a failed note costs nothing before the record expires.
pub(crate) async fn note_consumed(attempt: &Attempt<'_>, report: &Report<'_>) {
    let Some(ResolvedOrdering::Sequence(position)) = attempt.prepared.ordering.as_deref() else { return };
    let engine = attempt.engine;
    let deadline = attempt.return_deadline(engine.clock.now());
    let noted = engine.before(deadline, mark_consumed(engine, &attempt.prepared, position)).await;
    if let Err(error) = noted.unwrap_or_else(|| Err(no_answer("in time"))) {
        report.event(&Event::StoreFailed { step: "order", error: &error });
    }
}

async fn mark_consumed(
    engine: &Arc<Engine>,
    prepared: &Prepared,
    position: &SequencePosition,
) -> Result<(), StoreError> {
    let Some(order) = engine.store.abilities().order else { return Ok(()) };
    let mut stored: Option<Arc<[u8]>> = position.admitted_table.get().map(|encoded| encoded[..].into());
    for _ in 0..MAX_CONTENTION {
        let Some(bytes) = stored else { return Ok(()) };
        let mut table = decode(&bytes)?;
        if !table.mark_consumed(position.number, &prepared.request.key)
            || swap_table(engine, prepared, position, order, Some(&bytes), &encode(&table)).await?
        {
            return Ok(());
        }
        stored = engine.with_timeout(prepared.policy.lease / 3, order.line(&position.table_key)).await?.line;
    }
    Err(contention_error())
}

pub(super) fn contention_error() -> StoreError {
    StoreError::new(StoreErrorKind::NotApplied)
        .because(format!("{MAX_CONTENTION} times in a row somebody else changed the stream's order table; try again"))
}
