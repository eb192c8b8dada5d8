//! `after`: a call runs once the call that it names is consumed.
//!
//! A waiting call holds nothing, so a crash leaves nothing to clean up: the broker delivers the call again, and the next read
//! decides again. The time for which a call has waited counts from a marker in the store ([`WaitMarker`]), so all processes see
//! the same time, and the time survives each of them. If a process is killed
//! - before it writes the marker, the next delivery writes the marker, and the time starts there;
//! - after it writes the marker, the next delivery finds the marker;
//! - between the completion of the predecessor and the claim of this call, the predecessor stays consumed;
//! - while it buries a call, the key is free after the lease, and the next delivery buries the call.
use std::sync::Arc;
use std::time::Duration;

use super::admission::{Admission, admission};
use super::predecessor_record::{apply, read_record, recheck_at};
use super::wait_marker::{Overdue, WaitMarker, read_marker, waited, write_marker};
use crate::clock::later;
use crate::engine::{DrainPhase, Engine};
use crate::policy::OnInFlight;
use crate::run::{NotAcquired, Prepared, Report, refused};
use crate::{Event, InFlight, Key, Micros, Record, State, StateKind, StoreError};

/// The decision on a call, and the time for which the call has waited.
struct Decision {
    admission: Admission,
    waited: Duration,
}

/// Waits until the call may run, or until its own key is settled, so that the claim has an answer. `waits` says whether the
/// call may wait in place, if its policy says so.
pub(crate) async fn await_predecessor(
    engine: &Arc<Engine>,
    prepared: &Prepared,
    predecessor: &Key,
    report: &Report<'_>,
    waits: bool,
) -> Result<(), NotAcquired> {
    let max_wait = match prepared.terms.on_in_flight {
        OnInFlight::Wait(max) if waits => max,
        _ => Duration::ZERO,
    };
    let deadline = later(engine.clock.now(), max_wait);
    // Without a permit, too many calls wait, and this one is deferred.
    let permit = (!max_wait.is_zero()).then(|| engine.wait_permits.try_acquire().ok()).flatten();
    let until = if prepared.inside { DrainPhase::Closed } else { DrainPhase::Draining };
    loop {
        // Watching starts before the read, so that no settlement between the two goes unnoticed.
        let settled = permit.as_ref().map(|_| engine.watch(predecessor));
        let decided = decide(engine, prepared, predecessor).await.map_err(|error| {
            report.event(&Event::StoreFailed { step: "peek", error: &error });
            refused(engine, error, prepared)
        });
        let Decision { admission, waited } = decided?;
        let is_over = engine.clock.now() >= deadline || engine.drain.has_reached(until);
        match (admission, settled) {
            (Admission::Wait | Admission::Hold(_), Some(settled)) if !is_over => {
                let rest = InFlight::Leased { rest: deadline.saturating_duration_since(engine.clock.now()) };
                engine.settled(settled, rest, recheck_at(engine, prepared, deadline), until).await;
            }
            _ => return apply(engine, prepared, report, admission, waited).await,
        }
    }
}

/// Reads the records of both calls, and decides.
async fn decide(engine: &Engine, prepared: &Prepared, predecessor: &Key) -> Result<Decision, StoreError> {
    let run = Decision { admission: Admission::Run, waited: Duration::ZERO };
    let (record, now) = read_record(engine, prepared, predecessor).await?;
    let is_absent = record.is_none();
    let (state, since) = match record {
        // The worker was killed, and perhaps no other one takes over: the call is missing since the end of the lease.
        Some(Record { state: State::Consuming { until, .. }, .. }) if until <= now => (StateKind::Absent, until),
        Some(record) => (record.state.kind(), record.updated_at),
        None => (StateKind::Absent, Micros(0)),
    };
    if state == StateKind::Consumed {
        return Ok(run);
    }
    // A duplicate of a settled call gets its answer, whatever the state of the predecessor. A call in flight may be one that
    // is being buried, and does not show that its turn had come.
    let own = read_record(engine, prepared, &prepared.request.key).await?.0.map(|record| record.state.kind());
    if matches!(own, Some(StateKind::Consumed | StateKind::Failed | StateKind::Dead)) {
        return Ok(run);
    }
    let marker = read_marker(engine, prepared, &prepared.request.key).await?;
    let Overdue { waited, restarts } = match state {
        StateKind::Absent => missing_for(engine, prepared, predecessor, marker, since, is_absent).await?,
        StateKind::Failed | StateKind::Dead => Overdue { waited: waited(marker, since), restarts: false },
        _ => Overdue::default(),
    };
    let admission = admission(state, waited, prepared.terms.on_broken_order);
    if matches!(admission, Admission::Wait | Admission::Hold(_)) {
        write_marker(engine, prepared, marker, restarts).await?;
    }
    Ok(Decision { admission, waited })
}

/// Returns the time for which the predecessor has been missing. `since` is the end of its last lease.
async fn missing_for(
    engine: &Engine,
    prepared: &Prepared,
    predecessor: &Key,
    marker: Option<WaitMarker>,
    since: Micros,
    is_absent: bool,
) -> Result<Overdue, StoreError> {
    let patience = prepared.terms.on_broken_order.patience();
    let so_far = Overdue { waited: waited(marker, since), restarts: false };
    let Some(own) = marker.filter(|_| so_far.waited >= patience) else { return Ok(so_far) };
    // A predecessor that waits itself is not missing, as long as it is delivered.
    let last_sign = match is_absent {
        true => read_marker(engine, prepared, predecessor).await?.map(|marker| marker.present_until(patience)),
        false => Some(since),
    };
    Ok(last_sign.map_or(so_far, |sign| own.overdue(sign, patience)))
}
