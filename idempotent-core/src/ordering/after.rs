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

use super::admission::{Admission, admission};
use super::predecessor_record::{apply_admission, noted_until, seen};
use super::wait_marker::{WaitMarker, read_marker, waited, write_marker};
use crate::clock::later;
use crate::engine::{DrainPhase, Engine};
use crate::policy::OnInFlight;
use crate::run::{NotAcquired, Prepared, Report, refused};
use crate::{Event, InFlight, Key, Micros, Record, State, StateKind, StoreError};

/// What was found, and how long the call has waited where that counts.
struct Seen {
    turn: Admission,
    waited: Duration,
}

/// Ends well once it is the call's turn, or where its key is settled and the claim has an answer. `waits`: in place,
/// where the policy says so.
pub(crate) async fn in_turn(
    engine: &Arc<Engine>,
    prepared: &Prepared,
    after: &Key,
    report: &Report<'_>,
    waits: bool,
) -> Result<(), NotAcquired> {
    let most = match prepared.terms.on_in_flight {
        OnInFlight::Wait(most) if waits => most,
        _ => Duration::ZERO,
    };
    let deadline = later(engine.clock.now(), most);
    // Too many wait already: this one is told to come back.
    let place = (!most.is_zero()).then(|| engine.wait_permits.try_acquire().ok()).flatten();
    let until = if prepared.inside { DrainPhase::Closed } else { DrainPhase::Draining };
    loop {
        // Watching begins before the store is asked: nothing can be settled unseen in between.
        let settled = place.as_ref().map(|_| engine.watch(after));
        let looked = look(engine, prepared, after).await.map_err(|error| {
            report.event(&Event::StoreFailed { step: "peek", error: &error });
            refused(engine, error, prepared)
        });
        let seen = looked?;
        let over = engine.clock.now() >= deadline || engine.drain.has_reached(until);
        match (seen.turn, settled) {
            (Admission::Wait | Admission::Hold(_), Some(settled)) if !over => {
                let rest = InFlight::Leased { rest: deadline.saturating_duration_since(engine.clock.now()) };
                engine.settled(settled, rest, noted_until(engine, prepared, deadline), until).await;
            }
            _ => return apply_admission(engine, prepared, report, seen.turn, seen.waited).await,
        }
    }
}

async fn look(engine: &Arc<Engine>, prepared: &Prepared, after: &Key) -> Result<Seen, StoreError> {
    let policy = prepared.terms.on_broken_order;
    let at_once = Seen { turn: Admission::Run, waited: Duration::ZERO };
    let (found, now) = seen(engine, prepared, after).await?;
    let unseen = found.is_none();
    let (state, since) = match found {
        // A run whose lease is over was killed. Nobody runs it, and perhaps nobody will: it is missing since then.
        Some(Record { state: State::Consuming { until, .. }, .. }) if until <= now => (StateKind::Absent, until),
        Some(record) => (record.state.kind(), record.updated_at),
        None => (StateKind::Absent, Micros(0)),
    };
    if state == StateKind::Consumed {
        return Ok(at_once);
    }
    // A duplicate of what is settled gets its answer, whatever has become of the predecessor. One in flight may be a
    // call that is being buried, which is no sign that its turn had come.
    let own = seen(engine, prepared, &prepared.request.key).await?.0.map(|record| record.state.kind());
    if matches!(own, Some(StateKind::Consumed | StateKind::Failed | StateKind::Dead)) {
        return Ok(at_once);
    }
    let noted = read_marker(engine, prepared, &prepared.request.key).await?;
    let (waited, anew) = match state {
        StateKind::Absent => missed(engine, prepared, after, noted, since, unseen).await?,
        StateKind::Failed | StateKind::Dead => (waited(noted, since), false),
        _ => (Duration::ZERO, false),
    };
    let turn = admission(state, waited, policy);
    if matches!(turn, Admission::Wait | Admission::Hold(_)) {
        write_marker(engine, prepared, noted, anew).await?;
    }
    Ok(Seen { turn, waited })
}

/// For how long the call has waited for one that nobody runs, and whether that is to be counted anew.
async fn missed(
    engine: &Arc<Engine>,
    prepared: &Prepared,
    after: &Key,
    noted: Option<WaitMarker>,
    killed: Micros,
    unseen: bool,
) -> Result<(Duration, bool), StoreError> {
    let patience = prepared.terms.on_broken_order.patience();
    let so_far = waited(noted, killed);
    let Some(own) = noted.filter(|_| so_far >= patience) else { return Ok((so_far, false)) };
    // One that waits itself is not missing, as long as it is delivered.
    let sign = match unseen {
        true => read_marker(engine, prepared, after).await?.map(|there| there.until(patience)),
        false => Some(killed),
    };
    Ok(sign.map_or((so_far, false), |sign| own.overdue(sign, patience)))
}
