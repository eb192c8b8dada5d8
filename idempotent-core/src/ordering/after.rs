//! Whose turn it is: a call that comes after another looks whether that one is consumed before it claims its own key.
//!
//! Nothing is held while it waits, so a crash leaves nothing behind: wherever it happens, the broker delivers again and the
//! next look decides anew. What a call has waited is counted from a note in the store, a record of its own beside the
//! call's ([`WaitMarker`]), so that it is the same for every process and survives all of them:
//! - killed before the note: the next delivery writes it, and its time begins there;
//! - killed after it: the next one finds it;
//! - killed between the predecessor's flip and the claim: the predecessor stays consumed;
//! - killed while a call is buried: its key is free once the lease ends, and the next delivery looks and buries again.
use std::sync::Arc;
use std::time::Duration;

use super::admission::{Admission, decide_admission};
use super::predecessor_record::{apply_admission, read_record, recheck_deadline};
use super::wait_marker::{WaitMarker, read_marker, waited, write_marker};
use crate::clock::later;
use crate::engine::{DrainPhase, Engine};
use crate::policy::OnInFlight;
use crate::run::{NotAcquired, Prepared, Report, store_failure};
use crate::{Event, InFlight, Key, Micros, Record, State, StateKind, StoreError};

/// What was found, and how long the call has waited where that counts.
struct PredecessorCheck {
    admission: Admission,
    waited: Duration,
}

/// Ends well once it is the call's turn, or where its key is settled and the claim has an answer. `waits`: in place,
/// where the policy says so.
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
    // Too many wait already: this one is told to come back.
    let permit = (!max_wait.is_zero()).then(|| engine.wait_permits.try_acquire().ok()).flatten();
    let phase = if prepared.is_nested { DrainPhase::GraceEnded } else { DrainPhase::Draining };
    loop {
        // Watching begins before the store is asked: nothing can be settled unseen in between.
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
        // A run whose lease is over was killed. Nobody runs it, and perhaps nobody will: it is missing since then.
        Some(Record { state: State::Consuming { until, .. }, .. }) if until <= now => (StateKind::Absent, until),
        Some(record) => (record.state.kind(), record.updated_at),
        None => (StateKind::Absent, Micros(0)),
    };
    if state == StateKind::Consumed {
        return Ok(run_now);
    }
    // A duplicate of what is settled gets its answer, whatever has become of the predecessor. One in flight may be a
    // call that is being buried, which is no sign that its turn had come.
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

/// For how long the call has waited for one that nobody runs, and whether that is to be counted anew.
async fn missing_for(
    engine: &Arc<Engine>,
    prepared: &Prepared,
    after: &Key,
    marker: Option<WaitMarker>,
    killed: Micros,
    is_unknown: bool,
) -> Result<(Duration, bool), StoreError> {
    let patience = prepared.policy.on_broken_order.patience();
    let so_far = waited(marker, killed);
    let Some(own) = marker.filter(|_| so_far >= patience) else { return Ok((so_far, false)) };
    // One that waits itself is not missing, as long as it is delivered.
    let last_sign = match is_unknown {
        true => read_marker(engine, prepared, after).await?.map(|other| other.present_until(patience)),
        false => Some(killed),
    };
    Ok(last_sign.map_or((so_far, false), |last_sign| own.overdue(last_sign, patience)))
}
