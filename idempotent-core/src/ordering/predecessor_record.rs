//! Operations that both forms of ordering share: reading records, and deferring, burying or admitting a call.
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::BrokenOrder;
use super::admission::Admission;
use super::halted::halted;
use super::wait_marker::marker_interval;
use crate::clock::later;
use crate::engine::{Engine, draining};
use crate::run::{NotAcquired, Prepared, ReleaseOnDrop, Report, refused, release, turned};
use crate::{Claim, Event, Key, Micros, Record, Rejection, Settled, StoreError, Verdict};

/// The shortest delay of a deferred call, and the shortest wait in place.
const SHORTEST_DELAY: Duration = Duration::from_millis(1);

/// Returns the instant at which a call that waits in place must read its predecessor again. A later call of the same order
/// takes a call without a recent marker for missing.
pub(super) fn recheck_at(engine: &Engine, prepared: &Prepared, deadline: Instant) -> Instant {
    let interval = marker_interval(prepared.terms.on_broken_order.patience()).max(SHORTEST_DELAY);
    deadline.min(later(engine.clock.now(), interval))
}

/// Reads a record, and the store's time if the store reports it. Otherwise the time is the executor's.
pub(super) async fn read_record(
    engine: &Engine,
    prepared: &Prepared,
    key: &Key,
) -> Result<(Option<Record>, Micros), StoreError> {
    let read = async {
        match engine.store.abilities().inspect {
            Some(inspect) => match inspect.inspect(key).await? {
                Some(seen) => Ok((Some(seen.record), seen.now)),
                None => Ok((None, engine.clock.wall())),
            },
            None => Ok((engine.store.peek(key).await?, engine.clock.wall())),
        }
    };
    engine.in_time(prepared.terms.lease / 3, read).await
}

/// Carries out an admission: returns normally if the call may run, and defers, holds or buries it otherwise. `waited` is the
/// time for which the call has waited.
pub(super) async fn apply(
    engine: &Arc<Engine>,
    prepared: &Prepared,
    report: &Report<'_>,
    admission: Admission,
    waited: Duration,
) -> Result<(), NotAcquired> {
    let broken = |why, skipped| {
        if why == BrokenOrder::Late {
            engine.counters.late();
        }
        report.event(&Event::OrderBroken { why, skipped });
    };
    match admission {
        Admission::Run => Ok(()),
        Admission::Skip(why) => {
            broken(why, true);
            Ok(())
        }
        _ if engine.is_draining() && !prepared.inside => Err(draining().into()),
        Admission::Wait => Err(Rejection::Waiting { retry_after: deferred_for(engine, prepared, waited) }.into()),
        Admission::Hold(why) => {
            broken(why, false);
            Err(Rejection::Held { retry_after: deferred_for(engine, prepared, waited), why }.into())
        }
        Admission::Halt(why) => {
            broken(why, false);
            Err(bury(engine, prepared, why).await.unwrap_or_else(|error| refused(engine, error, prepared)))
        }
    }
}

/// Buries the call without a run, so that the calls after it are buried as well. The executor's own store writes the record:
/// the transaction of a run that never starts is rolled back, and would roll the record back with it.
async fn bury(engine: &Arc<Engine>, prepared: &Prepared, why: BrokenOrder) -> Result<NotAcquired, StoreError> {
    let patience = prepared.terms.lease / 3;
    let mut guard = ReleaseOnDrop::new(engine, prepared).past_transaction();
    let grant = match engine.in_time(patience, engine.store.claim(&prepared.request)).await? {
        Claim::Acquired(mut grant) => {
            // The issue of a token counts as its first attempt.
            grant.attempt -= u32::from(prepared.issued && grant.attempt > 1);
            grant
        }
        other => {
            guard.disarm();
            return Ok(turned(engine, other, prepared));
        }
    };
    guard.granted(grant.fencing);
    let mut bury = release(Verdict::Bury, prepared.terms.memory, "");
    bury.error = halted(why, &prepared.waits_for(), grant.attempt).into();
    let held = prepared.held(Some(grant.fencing));
    let settled = engine.in_time(patience, engine.store.release(&held, &bury)).await?;
    guard.disarm();
    engine.tell_waiters(&prepared.request.key);
    Ok(NotAcquired::Away(match settled {
        Settled::Done => Rejection::Dead { attempts: grant.attempt, fencing: grant.fencing, error: bury.error },
        Settled::Lost { .. } => Rejection::LeaseLost,
    }))
}

/// Returns the delay of a deferred call. The delay grows with each deferral, up to half of the policy's patience and up to the
/// end of the patience: a call that is not delivered for longer counts as missing.
fn deferred_for(engine: &Engine, prepared: &Prepared, waited: Duration) -> Duration {
    let (terms, key) = (&prepared.terms, &prepared.request.key);
    let remember = terms.in_flight_delay_max.saturating_mul(4);
    let patience = terms.on_broken_order.patience();
    let grown = engine.deferred_by(key, remember, terms).min((patience / 2).max(SHORTEST_DELAY));
    match patience.saturating_sub(waited) {
        Duration::ZERO => grown,
        rest => grown.min(rest.max(SHORTEST_DELAY)),
    }
}
