//! Numbered calls of a stream: a call reads the stream's order table, and is admitted by a change of the table.
//!
//! The table ([`OrderTable`]) is replaced as a whole by compare-and-swap, so each change is atomic. The record of a key
//! shows that its number is consumed, so the completion itself lets the next number run. A call is *admitted* before
//! its claim. From then on all smaller numbers are over, and no other call is admitted while this one may run. Its
//! record shows that it runs; until the record exists, a time in the table does. After a crash the broker redelivers:
//! - before the admission: the waiting times in the table are still valid;
//! - after the admission, before the claim: the next delivery is admitted again. Other calls wait, and a
//!   late or skipping call waits no longer than a lease;
//! - during the run: the lease expires, and the call is missing from then on, until the next delivery takes over;
//! - between completion and the update of the table: the next number reads the record, as long as that is retained;
//! - halted, and not yet admitted: the next delivery finds a dead record, and is admitted.
use std::pin::pin;
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
    Event, InFlight, Key, OrderStore, PolicyError, Record, Rejection, State, StateKind, StoreError, StoreErrorKind,
    StoredOrderTable, Timestamp, Watching,
};

/// The maximum number of consecutive conflicts with other writers of the table.
pub(super) const MAX_CONTENTION: usize = 64;

/// The order table as read, and the decision that follows for the call.
struct TableSnapshot {
    table: OrderTable,
    bytes: Option<Arc<[u8]>>,
    now: Timestamp,
    admission: Admission,
    waited: Duration,
    /// The earlier deliveries of this call.
    marker: Option<WaitMarker>,
    /// True if the waiting time of the call starts again now.
    restart: bool,
    /// The key whose settlement lets the call continue, if it is known.
    blocker: Option<Key>,
    /// True if the call's own key is settled, so that its claim is answered from the record.
    is_settled: bool,
}

/// The state of a number's predecessor.
struct PredecessorStatus {
    state: StateKind,
    waited: Duration,
    restart: bool,
    /// The key whose settlement lets the call continue, if it is known.
    blocker: Option<Key>,
}

pub(crate) async fn await_turn(
    engine: &Arc<Engine>,
    prepared: &Prepared,
    position: &SequencePosition,
    report: &Report<'_>,
    may_wait: bool,
) -> Result<Instant, NotAcquired> {
    let order = engine.store.capabilities().order.ok_or_else(|| PolicyError::no_order(&engine.store))?;
    let max_wait = match prepared.policy.on_in_flight {
        OnInFlight::Wait(max_wait) if may_wait => max_wait,
        _ => Duration::ZERO,
    };
    let deadline = later(engine.clock.now(), max_wait);
    // The call is deferred if too many calls wait already.
    let permit = (!max_wait.is_zero()).then(|| engine.wait_permits.try_acquire().ok()).flatten();
    let phase = if prepared.is_nested { DrainPhase::GraceEnded } else { DrainPhase::Draining };
    let failed = |error| {
        report.event(&Event::StoreFailed { step: "order", error: &error });
        store_failure(engine, error, prepared)
    };
    let mut watched: Option<(Key, Watching)> = None;
    let mut conflicts = 0;
    while conflicts < MAX_CONTENTION {
        // The lease of a call that is admitted now counts from here.
        let began = engine.clock.now();
        let snapshot = load_snapshot(engine, prepared, position, order).await.map_err(failed)?;
        let is_over = engine.clock.now() >= deadline || engine.drain.has_reached(phase);
        let written = match snapshot.admission {
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
        if !written.map_err(failed)? {
            conflicts += 1;
            continue;
        }
        if matches!(snapshot.admission, Admission::Wait | Admission::Hold(_)) && permit.is_some() && !is_over {
            let blocker = snapshot.blocker.as_ref().unwrap_or(&prepared.request.key);
            // Watching started before the check, so that no settlement in between was missed.
            if let Some((_, settled)) = watched.take_if(|(key, _)| key == blocker) {
                let rest = deadline.saturating_duration_since(engine.clock.now());
                let is_known = snapshot.blocker.is_some();
                let rest = if is_known { InFlight::Leased { rest } } else { InFlight::Busy };
                engine.wait_for_settlement(settled, rest, recheck_deadline(engine, prepared, deadline), phase).await;
            }
            watched = Some((blocker.clone(), engine.watch(blocker)));
            continue;
        }
        return match apply_admission(engine, prepared, report, snapshot.admission, snapshot.waited).await {
            Ok(()) => Ok(began),
            Err(not_acquired) => {
                if let (Admission::Halt(why), NotAcquired::Rejected(Rejection::Dead { .. })) =
                    (snapshot.admission, &not_acquired)
                    && why != BrokenOrder::Late
                {
                    // If this write fails, the next delivery repeats it.
                    let _ = admit(engine, prepared, position, order, &snapshot).await;
                }
                Err(not_acquired)
            }
        };
    }
    Err(failed(contention_error()))
}

async fn load_snapshot(
    engine: &Arc<Engine>,
    prepared: &Prepared,
    position: &SequencePosition,
    order: &dyn OrderStore,
) -> Result<TableSnapshot, StoreError> {
    let StoredOrderTable { table: bytes, now } =
        engine.with_timeout(prepared.policy.lease / 3, order.load(&position.table_key)).await?;
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
    let is_settled = (again || admission != Admission::Run) && has_settled(engine, prepared, own).await?;
    if let (Admission::Run | Admission::Skip(_), Some(admitted), false) = (admission, &table.admitted, is_settled)
        && admitted.key != *own
        && may_run(engine, prepared, admitted, now).await?
    {
        (admission, blocker) = (Admission::Wait, Some(admitted.key.clone()));
    }
    Ok(TableSnapshot { table, bytes, now, admission, waited, marker, restart, blocker, is_settled })
}

/// Returns true if the call's own key is settled. Such a duplicate is answered whatever its predecessor's state.
async fn has_settled(engine: &Arc<Engine>, prepared: &Prepared, own: &Key) -> Result<bool, StoreError> {
    let found = read_record(engine, prepared, own).await?.0.map(|record| record.state.kind());
    Ok(matches!(found, Some(StateKind::Consumed | StateKind::Failed | StateKind::Dead)))
}

/// Determines the predecessor of a number, and for how long it has been missing.
async fn predecessor_status(
    engine: &Arc<Engine>,
    prepared: &Prepared,
    table: &OrderTable,
    number: u64,
    marker: Option<WaitMarker>,
    now: Timestamp,
) -> Result<PredecessorStatus, StoreError> {
    let patience = prepared.policy.on_broken_order.patience();
    let status = |(state, last_sign): (StateKind, Option<Timestamp>), blocker| {
        let (waited, restart) = match (state, marker, last_sign) {
            (StateKind::Absent, Some(own), Some(last_sign)) => own.overdue(last_sign, patience),
            _ => (waited(marker, last_sign.unwrap_or_default()), false),
        };
        PredecessorStatus { state, waited, restart, blocker }
    };
    let last_delivery = match table.precedence(number) {
        Precedence::Nothing => return Ok(status((StateKind::Consumed, None), None)),
        Precedence::LastAdmitted(key) => {
            return Ok(status(last_activity(engine, prepared, table, &key).await?, Some(key)));
        }
        Precedence::Expected(last_delivery) => last_delivery,
    };
    let present_until = last_delivery.map(|last| WaitMarker { first: last, last, now }.present_until(patience));
    let all = status((StateKind::Absent, present_until), None);
    // The waiting numbers are missing, but the last admitted call may be redelivered.
    let last = table.last.as_ref().filter(|last| all.waited >= patience && !last.is_consumed);
    let Some(last) = last else { return Ok(all) };
    let (state, last_sign) = last_activity(engine, prepared, table, &last.key).await?;
    Ok(match state {
        StateKind::Consuming | StateKind::Vacant => status((state, last_sign), Some(last.key.clone())),
        _ => status((StateKind::Absent, present_until.max(last_sign)), None),
    })
}

/// Returns the state of the last admitted call and the time of its last sign of activity.
async fn last_activity(
    engine: &Arc<Engine>,
    prepared: &Prepared,
    table: &OrderTable,
    key: &Key,
) -> Result<(StateKind, Option<Timestamp>), StoreError> {
    let (found, now) = read_record(engine, prepared, key).await?;
    Ok(match found {
        // The run was killed if its lease has expired, and is missing from then on.
        Some(Record { state: State::Consuming { until, .. }, .. }) if until <= now => (StateKind::Absent, Some(until)),
        Some(record) => (record.state.kind(), Some(record.updated_at)),
        // The call was about to claim.
        None => {
            let admitted = table.admitted.as_ref().filter(|admitted| admitted.key == *key);
            (StateKind::Absent, admitted.map(|admitted| admitted.until))
        }
    })
}

/// Returns true if the admitted call may be running. `table_read_at` is the store's time at which the table was read, for a
/// record that does not exist.
async fn may_run(
    engine: &Arc<Engine>,
    prepared: &Prepared,
    admitted: &Admitted,
    table_read_at: Timestamp,
) -> Result<bool, StoreError> {
    let (found, now) = read_record(engine, prepared, &admitted.key).await?;
    let now = if found.is_some() { now } else { table_read_at };
    Ok(admitted.may_run(found.as_ref().map(|record| &record.state), now))
}

/// Admits the call. Returns false if another writer was faster.
///
/// A call in a transaction claims invisibly to others, so its admission lasts for as long as the call may run.
async fn admit(
    engine: &Arc<Engine>,
    prepared: &Prepared,
    position: &SequencePosition,
    order: &dyn OrderStore,
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

/// Records the delivery of a waiting call. Returns false if another writer was faster. If the table is full, the call
/// waits without a record, in order with the recorded numbers.
async fn note_waiting(
    engine: &Arc<Engine>,
    prepared: &Prepared,
    position: &SequencePosition,
    order: &dyn OrderStore,
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
    order: &dyn OrderStore,
    expected: Option<&[u8]>,
    next_table: &[u8],
) -> Result<bool, StoreError> {
    let policy = &prepared.policy;
    let retention = table_retention(policy.retain, policy.retain_failures, policy.on_broken_order.patience());
    engine
        .with_timeout(policy.lease / 3, order.compare_and_swap(&position.table_key, expected, next_table, retention))
        .await
}

/// Marks the number of this run as consumed in the stream's table, so that the next call need not read its record. A
/// failed update is harmless until the record expires, since the record shows the same.
pub(crate) async fn note_consumed(attempt: &Attempt<'_>, report: &Report<'_>) {
    let Some(ResolvedOrdering::Sequence(position)) = attempt.prepared().ordering.as_deref() else { return };
    let engine = attempt.engine;
    let deadline = attempt.return_deadline(engine.clock.now());
    let noted = engine.before(|| deadline, pin!(mark_consumed(engine, attempt.prepared(), position))).await;
    if let Err(error) = noted.unwrap_or_else(|| Err(no_answer("in time"))) {
        report.event(&Event::StoreFailed { step: "order", error: &error });
    }
}

async fn mark_consumed(
    engine: &Arc<Engine>,
    prepared: &Prepared,
    position: &SequencePosition,
) -> Result<(), StoreError> {
    let Some(order) = engine.store.capabilities().order else { return Ok(()) };
    let mut stored: Option<Arc<[u8]>> = position.admitted_table.get().map(|encoded| encoded[..].into());
    for _ in 0..MAX_CONTENTION {
        let Some(bytes) = stored else { return Ok(()) };
        let mut table = decode(&bytes)?;
        if !table.mark_consumed(position.number, &prepared.request.key)
            || swap_table(engine, prepared, position, order, Some(&bytes), &encode(&table)).await?
        {
            return Ok(());
        }
        stored = order.load(&position.table_key).await?.table;
    }
    Err(contention_error())
}

pub(super) fn contention_error() -> StoreError {
    StoreError::new(StoreErrorKind::NotApplied).because(format!(
        "order table contention: other calls changed the stream's table {MAX_CONTENTION} times in a row; retry"
    ))
}
