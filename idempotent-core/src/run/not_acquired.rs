//! The results of a claim that was not granted.
use std::sync::Arc;

use super::prepared::Prepared;
use crate::engine::{Engine, draining_rejection};
use crate::policy::{OnStoreError, ResolvedPolicy};
use crate::{Claim, Rejection, StoreError, StoreErrorKind};

/// The next step after a claim that was not granted.
pub(crate) enum NotAcquired {
    Replay(Option<Arc<[u8]>>),
    Rejected(Rejection),
    /// The key is consumed, and the policy rejects duplicates.
    Duplicate(Arc<Prepared>),
    /// The store is unavailable, and the policy runs the handler without protection.
    Unprotected(StoreError, Arc<ResolvedPolicy>),
}

impl<T: Into<Rejection>> From<T> for NotAcquired {
    fn from(rejection: T) -> Self {
        Self::Rejected(rejection.into())
    }
}

pub(crate) fn not_granted(engine: &Engine, claim: Claim, prepared: &Prepared) -> NotAcquired {
    NotAcquired::Rejected(match claim {
        Claim::Consumed(consumed) => return NotAcquired::Replay(consumed.value),
        Claim::InFlight(_) if engine.is_draining() && !prepared.is_nested => draining_rejection(),
        Claim::InFlight(in_flight) => {
            prepared.in_flight_rejection(engine.in_flight_delay(&prepared.request.key, in_flight, &prepared.policy))
        }
        Claim::Delayed { rest } => Rejection::Delayed { retry_after: rest },
        Claim::Failed { error } => Rejection::Failed { error },
        Claim::Dead(dead) => Rejection::Dead { attempts: dead.attempts, fencing: dead.fencing, error: dead.error },
        Claim::Mismatch => Rejection::Mismatch,
        // The caller has handled grants. A grant without a run is left to its lease.
        Claim::Acquired(_) => Rejection::LeaseLost,
    })
}

/// Rejects a duplicate without a result. Includes the rest of the deduplication window, if the store reports it.
pub(crate) async fn duplicate_rejection(engine: &Engine, prepared: &Prepared) -> Rejection {
    let window = prepared.policy.window;
    let mut rest = window;
    if let Some(inspect) = engine.store.capabilities().inspect.filter(|_| !window.is_zero()) {
        let until = engine.clock.now() + prepared.policy.lease / 3;
        if let Some(Ok(Some(seen))) = engine.before(|| until, inspect.inspect(&prepared.request.key)).await {
            rest = (seen.record.expires_at - seen.now).min(window);
        }
    }
    prepared.duplicate_rejection(rest)
}
pub(crate) fn store_failure(engine: &Engine, error: StoreError, prepared: &Prepared) -> NotAcquired {
    // Only errors that mean that the store is unavailable: an unreadable record may be a consumed one.
    match prepared.policy.on_store_error {
        _ if engine.is_draining() && !prepared.is_nested => draining_rejection().into(),
        // A store that is busy answers other calls, and a duplicate would run.
        OnStoreError::RunUnprotected if error.is_worth_a_retry() && error.kind() != StoreErrorKind::Busy => {
            NotAcquired::Unprotected(error, prepared.policy.clone())
        }
        OnStoreError::RunUnprotected | OnStoreError::Fail => error.into(),
    }
}
