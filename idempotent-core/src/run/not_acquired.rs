//! The ways on from a claim that was not granted.
use std::sync::Arc;

use super::prepared::Prepared;
use crate::engine::{Engine, draining_rejection};
use crate::policy::{OnStoreError, ResolvedPolicy};
use crate::{Claim, Rejection, StoreError};

/// What a claim that was not won leads to.
pub(crate) enum NotAcquired {
    Replay(Option<Arc<[u8]>>),
    Rejected(Rejection),
    /// Consumed, and not to be replayed.
    Duplicate(Box<Prepared>),
    /// The store is down, and the policy says to run all the same.
    Unprotected(StoreError, Box<ResolvedPolicy>),
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
        // The caller took these; a grant nobody runs is left to its lease.
        Claim::Acquired(_) => Rejection::LeaseLost,
    })
}

/// What a duplicate is told that gets no result: with the rest of the window, where the store can tell it.
pub(crate) async fn duplicate_rejection(engine: &Engine, prepared: &Prepared) -> Rejection {
    let window = prepared.policy.window;
    let mut rest = window;
    if let Some(inspect) = engine.store.abilities().inspect.filter(|_| !window.is_zero()) {
        let until = engine.clock.now() + prepared.policy.lease / 3;
        if let Some(Ok(Some(seen))) = engine.before(until, inspect.inspect(&prepared.request.key)).await {
            rest = (seen.record.expires_at - seen.now).min(window);
        }
    }
    prepared.duplicate_rejection(rest)
}
pub(crate) fn store_failure(engine: &Engine, error: StoreError, prepared: &Prepared) -> NotAcquired {
    // Only what says that the store is down: a record that cannot be read may well be a consumed one.
    match prepared.policy.on_store_error {
        _ if engine.is_draining() && !prepared.is_nested => draining_rejection().into(),
        OnStoreError::RunUnprotected if error.is_worth_a_retry() => {
            NotAcquired::Unprotected(error, Box::new(prepared.policy))
        }
        OnStoreError::RunUnprotected | OnStoreError::Fail => error.into(),
    }
}
