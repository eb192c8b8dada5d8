//! Operations of both forms of ordering: reading another call's record, deferring a call, and halting it.
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::BrokenOrder;
use super::admission::Admission;
use super::halted::halted;
use super::wait_marker::marker_interval;
use crate::clock::later;
use crate::engine::{Engine, draining_rejection};
use crate::run::{NotAcquired, Prepared, ReleaseOnDrop, Report, not_granted, release, store_failure};
use crate::{Claim, ClaimHandle, Event, Key, Record, Rejection, ReleaseKind, Settled, StoreError, Timestamp};

/// The shortest retry delay, and the shortest wait in place.
pub(super) const MIN_DELAY: Duration = Duration::from_millis(1);

/// Returns the latest time of the next check of a call that waits in place. Each check renews the call's wait marker,
/// so that the calls after it do not take it for missing.
pub(super) fn recheck_deadline(engine: &Arc<Engine>, prepared: &Prepared, deadline: Instant) -> Instant {
    let again = marker_interval(prepared.policy.on_broken_order.patience()).max(MIN_DELAY);
    deadline.min(later(engine.clock.now(), again))
}

/// Carries out an admission: runs, defers or halts the call. `waited` is the time for which the call has waited.
pub(super) async fn apply_admission(
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
        _ if engine.is_draining() && !prepared.is_nested => Err(draining_rejection().into()),
        Admission::Wait => Err(Rejection::Waiting { retry_after: next_check_delay(engine, prepared, waited) }.into()),
        Admission::Hold(why) => {
            broken(why, false);
            Err(Rejection::Held { retry_after: next_check_delay(engine, prepared, waited), why }.into())
        }
        Admission::Halt(why) => {
            broken(why, false);
            Err(halt_call(engine, prepared, why).await.unwrap_or_else(|error| store_failure(engine, error, prepared)))
        }
    }
}

/// Reads a record with the store's current time, or the local time if the store does not report it.
pub(super) async fn read_record(
    engine: &Arc<Engine>,
    prepared: &Prepared,
    key: &Key,
) -> Result<(Option<Record>, Timestamp), StoreError> {
    let request = async {
        match engine.store.capabilities().inspect {
            Some(inspect) => match inspect.inspect(key).await? {
                Some(seen) => Ok((Some(seen.record), seen.now)),
                None => Ok((None, engine.clock.wall())),
            },
            None => Ok((engine.store.peek(key).await?, engine.clock.wall())),
        }
    };
    engine.with_timeout(prepared.policy.lease / 3, request).await
}

/// Marks the call as dead without a run, so that the calls after it are halted too. Uses the executor's own store,
/// since the call's transaction would be rolled back together with the record.
async fn halt_call(engine: &Arc<Engine>, prepared: &Prepared, why: BrokenOrder) -> Result<NotAcquired, StoreError> {
    let patience = prepared.policy.lease / 3;
    let mut guard = ReleaseOnDrop::new(engine, Arc::new(Prepared { transaction_store: None, ..prepared.clone() }));
    let grant = match engine.with_timeout(patience, engine.store.claim(&prepared.request)).await? {
        Claim::Acquired(grant) => prepared.without_issue(grant),
        other => {
            guard.disarm();
            return Ok(not_granted(engine, other, prepared));
        }
    };
    guard.granted(grant.fencing);
    let mut bury = release(ReleaseKind::MarkDead, prepared.policy.retain_failures, "");
    bury.error = halted(why, &prepared.waits_for(), grant.attempt).into();
    let held = ClaimHandle::granted(&prepared.request, &grant);
    let settled = engine.with_timeout(patience, engine.store.release(&held, &bury)).await?;
    guard.disarm();
    engine.wake_waiters(&prepared.request.key);
    Ok(NotAcquired::Rejected(match settled {
        Settled::Done => Rejection::Dead { attempts: grant.attempt, fencing: grant.fencing, error: bury.error },
        Settled::Lost { .. } => Rejection::LeaseLost,
    }))
}

/// Returns the delay until the next check. The delay grows with each deferral, up to half of the patience and to the
/// end of the patience.
fn next_check_delay(engine: &Arc<Engine>, prepared: &Prepared, waited: Duration) -> Duration {
    let (policy, key) = (&prepared.policy, &prepared.request.key);
    let remembered = policy.in_flight_delay_max.saturating_mul(4);
    let grown = engine.deferral_delay(key, remembered, policy);
    let patience = policy.on_broken_order.patience();
    // A call without deliveries for longer than that counts as missing.
    let grown = grown.min((patience / 2).max(MIN_DELAY));
    match patience.saturating_sub(waited) {
        Duration::ZERO => grown,
        rest => grown.min(rest.max(MIN_DELAY)),
    }
}
