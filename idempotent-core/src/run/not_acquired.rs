//! The ways on from a claim that was not granted.
use std::sync::Arc;

use super::prepared::Prepared;
use crate::engine::{Engine, draining};
use crate::policy::{OnStoreError, ResolvedPolicy};
use crate::{Claim, Rejection, StoreError};

/// What a claim that was not won leads to.
pub(crate) enum NotAcquired {
    Replay(Option<Arc<[u8]>>),
    Away(Rejection),
    /// Consumed, and not to be replayed.
    Duplicate(Box<Prepared>),
    /// The store is down, and the policy says to run all the same.
    Unprotected(StoreError, Box<ResolvedPolicy>),
}

impl<T: Into<Rejection>> From<T> for NotAcquired {
    fn from(rejection: T) -> Self {
        Self::Away(rejection.into())
    }
}

pub(crate) fn turned(engine: &Engine, claim: Claim, prepared: &Prepared) -> NotAcquired {
    NotAcquired::Away(match claim {
        Claim::Consumed(consumed) => return NotAcquired::Replay(consumed.value),
        Claim::InFlight(_) if engine.is_draining() && !prepared.inside => draining(),
        Claim::InFlight(in_flight) => {
            prepared.in_flight(engine.in_flight_delay(&prepared.request.key, in_flight, &prepared.terms))
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
pub(crate) async fn duplicate(engine: &Engine, prepared: &Prepared) -> Rejection {
    let window = prepared.terms.window;
    let mut rest = window;
    if let Some(inspect) = engine.store.abilities().inspect.filter(|_| !window.is_zero()) {
        let until = engine.clock.now() + prepared.terms.lease / 3;
        if let Some(Ok(Some(seen))) = engine.before(until, inspect.inspect(&prepared.request.key)).await {
            rest = (seen.record.expires_at - seen.now).min(window);
        }
    }
    prepared.duplicate(rest)
}
pub(crate) fn refused(engine: &Engine, error: StoreError, prepared: &Prepared) -> NotAcquired {
    // Only what says that the store is down: a record that cannot be read may well be a consumed one.
    match prepared.terms.on_store_error {
        _ if engine.is_draining() && !prepared.inside => draining().into(),
        OnStoreError::RunUnprotected if error.is_worth_a_retry() => {
            NotAcquired::Unprotected(error, Box::new(prepared.terms))
        }
        OnStoreError::RunUnprotected | OnStoreError::Fail => error.into(),
    }
}
