//! Calls after another call: the predecessor's record is read before the call claims its own key.
//!
//! A waiting call holds nothing, so a crash leaves nothing to clean up: the broker redelivers the message, and the next
//! check decides again. The waiting time is counted from a record of its own in the store ([`WaitMarker`]), so all
//! processes agree on it and it survives each of them:
//! - killed before the marker is written: the next delivery writes the marker, and the time counts from there;
//! - killed after the marker is written: the next delivery reads the marker;
//! - killed between the predecessor's completion and the claim: the predecessor stays consumed;
//! - killed while a call is halted: the lease expires, and the next delivery checks and halts the call again.
use std::sync::Arc;
use std::time::Duration;

use super::admission::{Admission, decide_admission};
use super::predecessor_record::{apply_admission, read_record, recheck_deadline};
use super::wait_marker::{WaitMarker, read_marker, waited, write_marker};
use crate::clock::later;
use crate::engine::{DrainPhase, Engine};
use crate::policy::OnInFlight;
use crate::run::{NotAcquired, Prepared, Report, store_failure};
use crate::{Event, InFlight, Key, Record, State, StateKind, StoreError, Timestamp};

/// The result of a check, and how long the call has waited if that matters.
struct PredecessorCheck {
    admission: Admission,
    waited: Duration,
}

/// Returns `Ok` once the call may run, or if its own key is settled and the claim will be answered from the record.
/// With `may_wait`, waits in place if the policy allows that.
pub(crate) async fn await_turn(
    engine: &Arc<Engine>,
    prepared: &Prepared,
    after: &Key,
    report: &Report<'_>,
    may_wait: bool,
) -> Result<(), NotAcquired> {
    let max_wait = match prepared.policy.on_in_flight {
        OnInFlight::Wait(max_wait) if may_wait => max_wait,
        _ => Duration::ZERO,
    };
    let deadline = later(engine.clock.now(), max_wait);
    // The call is deferred if too many calls wait already.
    let permit = (!max_wait.is_zero()).then(|| engine.wait_permits.try_acquire().ok()).flatten();
    let phase = if prepared.is_nested { DrainPhase::GraceEnded } else { DrainPhase::Draining };
    loop {
        // Watching starts before the request, so that no settlement in between is missed.
        let settled = permit.as_ref().map(|_| engine.watch(after));
        let checked = check_predecessor(engine, prepared, after).await.map_err(|error| {
            report.event(&Event::StoreFailed { step: "peek", error: &error });
            store_failure(engine, error, prepared)
        });
        let check = checked?;
        let is_over = engine.clock.now() >= deadline || engine.drain.has_reached(phase);
        match (check.admission, settled) {
            (Admission::Wait | Admission::Hold(_), Some(settled)) if !is_over => {
                let rest = InFlight::Leased { rest: deadline.saturating_duration_since(engine.clock.now()) };
                engine.wait_for_settlement(settled, rest, recheck_deadline(engine, prepared, deadline), phase).await;
            }
            _ => return apply_admission(engine, prepared, report, check.admission, check.waited).await,
        }
    }
}

async fn check_predecessor(
    engine: &Arc<Engine>,
    prepared: &Prepared,
    after: &Key,
) -> Result<PredecessorCheck, StoreError> {
    let policy = prepared.policy.on_broken_order;
    let run_now = PredecessorCheck { admission: Admission::Run, waited: Duration::ZERO };
    let (found, now) = read_record(engine, prepared, after).await?;
    let is_unknown = found.is_none();
    let (state, since) = match found {
        // The run was killed if its lease has expired. It may never be retried, so it is missing from then on.
        Some(Record { state: State::Consuming { until, .. }, .. }) if until <= now => (StateKind::Absent, until),
        Some(record) => (record.state.kind(), record.updated_at),
        None => (StateKind::Absent, Timestamp(0)),
    };
    if state == StateKind::Consumed {
        return Ok(run_now);
    }
    // A duplicate of a settled call is answered whatever its predecessor's state. A call in flight may be in the
    // process of being halted, which does not mean that it was admitted.
    let own = read_record(engine, prepared, &prepared.request.key).await?.0.map(|record| record.state.kind());
    if matches!(own, Some(StateKind::Consumed | StateKind::Failed | StateKind::Dead)) {
        return Ok(run_now);
    }
    let marker = read_marker(engine, prepared, &prepared.request.key).await?;
    let (waited, restart) = match state {
        StateKind::Absent => missing_for(engine, prepared, after, marker, since, is_unknown).await?,
        StateKind::Failed | StateKind::Dead => (waited(marker, since), false),
        _ => (Duration::ZERO, false),
    };
    let admission = decide_admission(state, waited, policy);
    if matches!(admission, Admission::Wait | Admission::Hold(_)) {
        write_marker(engine, prepared, marker, restart).await?;
    }
    Ok(PredecessorCheck { admission, waited })
}

/// Returns how long the call has waited for a missing predecessor, and whether that time starts again now.
async fn missing_for(
    engine: &Arc<Engine>,
    prepared: &Prepared,
    after: &Key,
    marker: Option<WaitMarker>,
    killed: Timestamp,
    is_unknown: bool,
) -> Result<(Duration, bool), StoreError> {
    let patience = prepared.policy.on_broken_order.patience();
    let so_far = waited(marker, killed);
    let Some(own) = marker.filter(|_| so_far >= patience) else { return Ok((so_far, false)) };
    // A predecessor that waits itself is not missing while it is redelivered.
    let last_sign = match is_unknown {
        true => read_marker(engine, prepared, after).await?.map(|other| other.present_until(patience)),
        false => Some(killed),
    };
    Ok(last_sign.map_or((so_far, false), |last_sign| own.overdue(last_sign, patience)))
}
