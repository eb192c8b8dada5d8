//! `sequence`: a call with a number in a stream runs when the stream's order table admits it.
//!
//! The [`OrderTable`] is replaced as a whole, by compare-and-swap, so each change is atomic. The record of a number's key says
//! that the number is consumed: its completion lets the next number run. Before its claim, a call is *admitted*. From then on
//! all smaller numbers are over, and no other call is admitted while this one may run. The record of its key says so, and until
//! the record exists, a time in the table does. If a process is killed, the broker delivers the call again:
//! - before the admission, the table still says that the call waits, and since when;
//! - between admission and claim, the next delivery is admitted again, and other calls wait for it, late ones and skipping ones
//!   for at most one lease;
//! - during the run, the lease expires, and the call is missing until the next delivery takes over;
//! - between the completion and its note in the table, the next number reads the record, as long as the record is retained;
//! - between the burial of a call and its admission, the next delivery finds the dead record, and admits the call.
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::admission::{Admission, admission};
use super::encoding::{pack, unpack};
use super::order_table::{Admitted, OrderTable, Precedence, WaitTimes, retention};
use super::position::SequencePosition;
use super::predecessor_record::{apply, read_record, recheck_at};
use super::wait_marker::{Overdue, WaitMarker, waited};
use super::{BrokenOrder, OnLate};
use crate::clock::later;
use crate::engine::{DrainPhase, Engine, no_answer};
use crate::policy::OnInFlight;
use crate::run::{After, Attempt, NotAcquired, Prepared, Report, refused};
use crate::{
    Event, InFlight, Key, Lined, Micros, Order, PolicyError, Record, Rejection, State, StateKind, StoreError,
    StoreErrorKind, Watching,
};

/// The number of times in a row that another process may change the table first.
pub(super) const MAX_CONTENTION: usize = 64;

/// A call and its position, with the store that keeps the order table.
struct Sequence<'a> {
    engine: &'a Arc<Engine>,
    prepared: &'a Prepared,
    position: &'a SequencePosition,
    order: &'a dyn Order,
}

/// The order table as it was read, and the decision on the call.
struct TableSnapshot {
    table: OrderTable,
    bytes: Option<Arc<[u8]>>,
    now: Micros,
    admission: Admission,
    overdue: Overdue,
    /// The earlier deliveries of the call.
    marker: Option<WaitMarker>,
    /// The key whose settlement lets the call run, if there is one.
    blocked_by: Option<Key>,
    /// True if the call's own key is settled, so that the claim has an answer.
    is_settled: bool,
}

/// The state of the calls before a number.
struct PredecessorStatus {
    state: StateKind,
    overdue: Overdue,
    /// The key whose settlement lets the number run, if there is one.
    blocked_by: Option<Key>,
}

/// Waits until the call is admitted, or until its own key is settled. Returns the instant from which the lease of an admitted
/// call counts. `waits` says whether the call may wait in place, if its policy says so.
pub(crate) async fn await_admission(
    engine: &Arc<Engine>,
    prepared: &Prepared,
    position: &SequencePosition,
    report: &Report<'_>,
    waits: bool,
) -> Result<Instant, NotAcquired> {
    let order = engine.store.abilities().order.ok_or_else(|| PolicyError::no_order(&engine.store))?;
    let sequence = Sequence { engine, prepared, position, order };
    let max_wait = match prepared.terms.on_in_flight {
        OnInFlight::Wait(max) if waits => max,
        _ => Duration::ZERO,
    };
    let deadline = later(engine.clock.now(), max_wait);
    // Without a permit, too many calls wait, and this one is deferred.
    let permit = (!max_wait.is_zero()).then(|| engine.wait_permits.try_acquire().ok()).flatten();
    let until = if prepared.inside { DrainPhase::Closed } else { DrainPhase::Draining };
    let failed = |error| {
        report.event(&Event::StoreFailed { step: "order", error: &error });
        refused(engine, error, prepared)
    };
    let mut watched: Option<(Key, Watching)> = None;
    let mut lost_races = 0;
    while lost_races < MAX_CONTENTION {
        // The lease of a call that is admitted now counts from here.
        let began = engine.clock.now();
        let snapshot = sequence.read().await.map_err(failed)?;
        let is_over = engine.clock.now() >= deadline || engine.drain.has_reached(until);
        let written = match snapshot.admission {
            _ if snapshot.is_settled => {
                if matches!(snapshot.admission, Admission::Halt(why) if why != BrokenOrder::Late) {
                    sequence.admit(&snapshot).await.map_err(failed)?;
                }
                return Ok(began);
            }
            Admission::Run | Admission::Skip(_) => sequence.admit(&snapshot).await,
            Admission::Wait | Admission::Hold(_) => sequence.note_waiting(&snapshot).await,
            Admission::Halt(_) => Ok(true),
        };
        if !written.map_err(failed)? {
            lost_races += 1;
            continue;
        }
        if matches!(snapshot.admission, Admission::Wait | Admission::Hold(_)) && permit.is_some() && !is_over {
            let blocked_by = snapshot.blocked_by.as_ref().unwrap_or(&prepared.request.key);
            // Watching started before the read that found the call waiting, so no settlement went unnoticed.
            if let Some((_, settled)) = watched.take_if(|(key, _)| key == blocked_by) {
                let rest = deadline.saturating_duration_since(engine.clock.now());
                let notifies = snapshot.blocked_by.is_some();
                let rest = if notifies { InFlight::Leased { rest } } else { InFlight::Busy };
                engine.settled(settled, rest, recheck_at(engine, prepared, deadline), until).await;
            }
            watched = Some((blocked_by.clone(), engine.watch(blocked_by)));
            continue;
        }
        return match apply(engine, prepared, report, snapshot.admission, snapshot.overdue.waited).await {
            Ok(()) => Ok(began),
            Err(rejected) => {
                if let (Admission::Halt(why), NotAcquired::Away(Rejection::Dead { .. })) =
                    (snapshot.admission, &rejected)
                    && why != BrokenOrder::Late
                {
                    // If this fails, the next delivery admits the call.
                    let _ = sequence.admit(&snapshot).await;
                }
                Err(rejected)
            }
        };
    }
    Err(failed(contention_error()))
}

impl Sequence<'_> {
    /// Reads the order table and the records that it refers to, and decides.
    async fn read(&self) -> Result<TableSnapshot, StoreError> {
        let terms = &self.prepared.terms;
        let (own, number) = (&self.prepared.request.key, self.position.number);
        let Lined { line: bytes, now } =
            self.engine.in_time(terms.lease / 3, self.order.line(&self.position.table)).await?;
        let table = bytes.as_deref().map(unpack).transpose()?.unwrap_or_default();
        let marker = table.seen(number).map(|WaitTimes { first, last }| WaitMarker { first, last, now });
        let PredecessorStatus { state, overdue, mut blocked_by } = self.predecessor(&table, marker, now).await?;
        let is_late = table.is_late(number, own);
        let mut admission = match (is_late, terms.on_late) {
            (false, _) => admission(state, overdue.waited, terms.on_broken_order),
            (true, OnLate::Run) => Admission::Skip(BrokenOrder::Late),
            (true, OnLate::Refuse) => Admission::Halt(BrokenOrder::Late),
        };
        let is_last = table.last.as_ref().is_some_and(|last| last.number == number);
        let is_settled = (is_late || is_last || admission != Admission::Run) && self.is_settled(own).await?;
        if let (Admission::Run | Admission::Skip(_), Some(admitted), false) = (admission, &table.admitted, is_settled)
            && admitted.key != *own
            && self.may_run(admitted, now).await?
        {
            (admission, blocked_by) = (Admission::Wait, Some(admitted.key.clone()));
        }
        Ok(TableSnapshot { table, bytes, now, admission, overdue, marker, blocked_by, is_settled })
    }

    /// Returns true if the record of a key is settled. A duplicate of a settled call gets its answer, whatever the state of its
    /// predecessor.
    async fn is_settled(&self, key: &Key) -> Result<bool, StoreError> {
        let state = read_record(self.engine, self.prepared, key).await?.0.map(|record| record.state.kind());
        Ok(matches!(state, Some(StateKind::Consumed | StateKind::Failed | StateKind::Dead)))
    }

    /// Returns the state of the calls before this number, and the time for which they have been missing.
    async fn predecessor(
        &self,
        table: &OrderTable,
        marker: Option<WaitMarker>,
        now: Micros,
    ) -> Result<PredecessorStatus, StoreError> {
        let patience = self.prepared.terms.on_broken_order.patience();
        let status = |(state, sign): (StateKind, Option<Micros>), blocked_by| {
            let overdue = match (state, marker, sign) {
                (StateKind::Absent, Some(own), Some(sign)) => own.overdue(sign, patience),
                _ => Overdue { waited: waited(marker, sign.unwrap_or_default()), restarts: false },
            };
            PredecessorStatus { state, overdue, blocked_by }
        };
        let last_delivery = match table.before(self.position.number) {
            Precedence::Nothing => return Ok(status((StateKind::Consumed, None), None)),
            Precedence::LastAdmitted(key) => return Ok(status(self.last_sign(table, &key).await?, Some(key))),
            Precedence::Expected(last_delivery) => last_delivery,
        };
        let present_until = last_delivery.map(|last| WaitMarker { first: last, last, now }.present_until(patience));
        let expected = status((StateKind::Absent, present_until), None);
        // The expected numbers are missing. The call that was admitted before them may be delivered again, though.
        let last = table.last.as_ref().filter(|last| expected.overdue.waited >= patience && !last.done);
        let Some(last) = last else { return Ok(expected) };
        let (state, sign) = self.last_sign(table, &last.key).await?;
        Ok(match state {
            StateKind::Consuming | StateKind::Vacant => status((state, sign), Some(last.key.clone())),
            _ => status((StateKind::Absent, present_until.max(sign)), None),
        })
    }

    /// Returns the state of the call that was admitted last, and the time of its last sign.
    async fn last_sign(&self, table: &OrderTable, key: &Key) -> Result<(StateKind, Option<Micros>), StoreError> {
        let (record, now) = read_record(self.engine, self.prepared, key).await?;
        Ok(match record {
            // The worker was killed: the call is missing since the end of the lease.
            Some(Record { state: State::Consuming { until, .. }, .. }) if until <= now => {
                (StateKind::Absent, Some(until))
            }
            Some(record) => (record.state.kind(), Some(record.updated_at)),
            // The call had been admitted and had not claimed its key.
            None => {
                let admitted = table.admitted.as_ref().filter(|admitted| admitted.key == *key);
                (StateKind::Absent, admitted.map(|admitted| admitted.until))
            }
        })
    }

    /// Returns true if an admitted call may be running. `table_read_at` is the store's time of the read of the table, for a
    /// record that does not exist and so has no time.
    async fn may_run(&self, admitted: &Admitted, table_read_at: Micros) -> Result<bool, StoreError> {
        let (record, now) = read_record(self.engine, self.prepared, &admitted.key).await?;
        let now = if record.is_some() { now } else { table_read_at };
        Ok(admitted.may_run(record.as_ref().map(|record| &record.state), now))
    }

    /// Admits the call. Returns false if another process changed the table first.
    ///
    /// A call in a transaction claims its key unseen, so the table says for its whole run that it may run.
    async fn admit(&self, snapshot: &TableSnapshot) -> Result<bool, StoreError> {
        let terms = &self.prepared.terms;
        let unseen = match (&self.prepared.via, snapshot.admission) {
            (_, Admission::Halt(_)) => Duration::ZERO,
            (Some(_), _) => terms.max_run.saturating_add(terms.lease),
            (None, _) => terms.lease,
        };
        let mut next = snapshot.table.clone();
        next.admit(self.position.number, &self.prepared.request.key, snapshot.now + unseen);
        let next = pack(&next).into_boxed_slice();
        let swapped = self.swap(snapshot.bytes.as_deref(), &next).await?;
        if swapped {
            let _ = self.position.written.set(next);
        }
        Ok(swapped)
    }

    /// Notes that the call waits, unless a recent note exists. Returns false if another process changed the table first. In a
    /// full table the call waits without a note, after all numbers of the table.
    async fn note_waiting(&self, snapshot: &TableSnapshot) -> Result<bool, StoreError> {
        let patience = self.prepared.terms.on_broken_order.patience();
        let restarts = snapshot.overdue.restarts;
        if !restarts && snapshot.marker.is_some_and(|marker| !marker.is_stale(patience)) {
            return Ok(true);
        }
        let mut next = snapshot.table.clone();
        if next.note_delivery(self.position.number, snapshot.now, restarts).is_err() || next == snapshot.table {
            return Ok(true);
        }
        self.swap(snapshot.bytes.as_deref(), &pack(&next)).await
    }

    /// Replaces the table if it still has these bytes.
    async fn swap(&self, seen: Option<&[u8]>, next: &[u8]) -> Result<bool, StoreError> {
        let terms = &self.prepared.terms;
        let keep = retention(terms.retain, terms.memory, terms.on_broken_order.patience());
        self.engine.in_time(terms.lease / 3, self.order.redraw(&self.position.table, seen, next, keep)).await
    }

    /// Notes that this number is consumed.
    async fn note_done(&self) -> Result<(), StoreError> {
        let mut seen: Option<Arc<[u8]>> = self.position.written.get().map(|written| written[..].into());
        for _ in 0..MAX_CONTENTION {
            let Some(bytes) = seen else { return Ok(()) };
            let mut table = unpack(&bytes)?;
            if !table.note_done(self.position.number, &self.prepared.request.key)
                || self.swap(Some(&bytes), &pack(&table)).await?
            {
                return Ok(());
            }
            let read = self.order.line(&self.position.table);
            seen = self.engine.in_time(self.prepared.terms.lease / 3, read).await?.line;
        }
        Err(contention_error())
    }
}

/// Notes in the stream's table that the number of this run is consumed, so that the next call need not read its record. The
/// record says the same, so a failed note costs nothing before the record expires.
pub(crate) async fn note_consumed(attempt: &Attempt<'_>, report: &Report<'_>) {
    let (engine, prepared) = (attempt.engine, &*attempt.prepared);
    let Some(After::Line(position)) = prepared.comes.as_deref() else { return };
    let Some(order) = engine.store.abilities().order else { return };
    let until = attempt.answers_at(engine.clock.now());
    let noted = engine.before(until, Sequence { engine, prepared, position, order }.note_done()).await;
    if let Err(error) = noted.unwrap_or_else(|| Err(no_answer("in time"))) {
        report.event(&Event::StoreFailed { step: "order", error: &error });
    }
}

pub(super) fn contention_error() -> StoreError {
    StoreError::new(StoreErrorKind::NotApplied)
        .because(format!("other processes changed the stream's order table {MAX_CONTENTION} times in a row; try again"))
}
